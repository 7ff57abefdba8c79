"""A trace to read: `open` one, then ask it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpumemtrace.analysis.facts import simulated_run
from gpumemtrace.analysis.fragmentation import Fragmentation, find_fragmentation
from gpumemtrace.analysis.growth import Growth, find_growth
from gpumemtrace.analysis.lifetimes import Lifetimes, find_lifetimes
from gpumemtrace.analysis.oom import Oom, find_oom
from gpumemtrace.analysis.peak_live_set import PeakLiveSet, find_peak_live_set
from gpumemtrace.analysis.segments import SegmentState, find_segments
from gpumemtrace.analysis.step_times import StepTimes, find_step_times
from gpumemtrace.category_rules import CategoryRule
from gpumemtrace.html_tables import html_facts
from gpumemtrace.records import FileSource
from gpumemtrace.trace_data import TraceData
from gpumemtrace.units import format_bytes, format_duration

if TYPE_CHECKING:
    import pandas
    import pyarrow

__all__ = ["Trace", "open"]


class Trace(TraceData):
    """A trace with its analyses as methods; the data itself is described at `TraceData`."""

    def _repr_html_(self) -> str:
        """Show itself in a notebook, by the outline of the file: nothing is read for it."""
        record = self.run_record
        start_ns, end_ns = self.time_span_ns
        devices = record.get("devices")
        names = [d.get("name") for d in devices or () if isinstance(d, dict)]
        simulated = simulated_run(record)
        facts = [
            ("script", record.get("script")),
            ("torch", record.get("torch")),
            ("devices", ", ".join(str(name) for name in names if name)),
            ("simulated", None if simulated is None else f"{simulated.card}: there was no GPU"),
            ("records", f"{self.whole_record_count:,}"),
            ("duration", format_duration((end_ns - start_ns) / 1e9)),
            ("file", format_bytes(self.file_bytes) if self.file_bytes else None),
            ("closed", "yes" if self.complete else "no: what came last may be missing"),
        ]
        told = [(name, str(text)) for name, text in facts if text]
        return html_facts(f"Trace {self.path or 'in memory'}", told)

    def lifetimes(self) -> Lifetimes:
        """Return one row per alloc: when, in which step and phase it was born and died."""
        return find_lifetimes(self)

    def growth(self, *, from_step: int | None = None) -> Growth:
        """Judge whether memory grows from step to step; see `find_growth`."""
        return find_growth(self, from_step=from_step)

    def to_pandas(self, table: str = "events") -> pandas.DataFrame:
        """Return a row per event, or with ``"allocations"`` a row per allocation.

        The columns are those of `gpumemtrace.export.tables.read_table`. Raises `GpuMemTraceError`
        without pandas.
        """
        from gpumemtrace.export.arrow import to_pandas

        frame: pandas.DataFrame = to_pandas(self, table)
        return frame

    def to_arrow(self, table: str = "events") -> pyarrow.Table:
        """Return the same rows for pyarrow. Raises `GpuMemTraceError` without pyarrow."""
        from gpumemtrace.export.arrow import to_arrow

        found: pyarrow.Table = to_arrow(self, table)
        return found

    def step_times(self) -> StepTimes:
        """Time steps and phases, and say which are slow and why; see `find_step_times`."""
        return find_step_times(self)

    def peak(
        self, step: int | None = None, *, device: int | None = None, line: str = "allocated"
    ) -> PeakLiveSet:
        """Return the peak, of the run or of ``step``, and what was in use then.

        See `find_peak_live_set`, which also says what it raises.
        """
        return find_peak_live_set(self, step=step, device=device, line=line)

    def segments(
        self,
        *,
        device: int | None = None,
        event: int | None = None,
        step: int | None = None,
        time_ns: int | None = None,
    ) -> SegmentState:
        """Return the allocator's segments, block by block, at one instant; see `find_segments`."""
        return find_segments(self, device=device, event=event, step=step, time_ns=time_ns)

    def fragmentation(
        self,
        *,
        device: int | None = None,
        event: int | None = None,
        step: int | None = None,
        time_ns: int | None = None,
        top: int = 10,
    ) -> Fragmentation:
        """Say what is cached, why, and what would have fitted; see `find_fragmentation`."""
        return find_fragmentation(
            self, device=device, event=event, step=step, time_ns=time_ns, top=top
        )

    def oom(self) -> Oom:
        """Say why requests failed, and what would have helped; see `find_oom`."""
        return find_oom(self)


def open(path: str | os.PathLike[str], *, category_rules: Sequence[CategoryRule] = ()) -> Trace:
    """Open a trace file. Only its outline is read now.

    ``category_rules``: rules of your own that say what allocations are for, as
    `gpumemtrace.category_rules.load_category_rules` reads them; the first that is true decides.

    Raises `OSError`; `NotATraceError`, `UnsupportedVersionError` or `CorruptTraceError` if the file
    can't be read as a trace. A file that is merely incomplete opens: see `TraceData.problems`.
    """
    return Trace(FileSource(path), category_rules=category_rules)
