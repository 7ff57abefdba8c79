"""A trace to read: `open` one, then ask it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpumemtrace.analysis.growth import Growth, find_growth
from gpumemtrace.analysis.lifetimes import Lifetimes, find_lifetimes
from gpumemtrace.analysis.peak_live_set import PeakLiveSet, find_peak_live_set
from gpumemtrace.analysis.step_times import StepTimes, find_step_times
from gpumemtrace.records import FileSource
from gpumemtrace.trace_data import TraceData

if TYPE_CHECKING:
    import pandas
    import pyarrow

__all__ = ["Trace", "open"]


class Trace(TraceData):
    """A trace with its analyses as methods; the data itself is described at `TraceData`."""

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


def open(path: str | os.PathLike[str]) -> Trace:
    """Open a trace file. Only its outline is read now.

    Raises `OSError`; `NotATraceError`, `UnsupportedVersionError` or `CorruptTraceError` if the file
    can't be read as a trace. A file that is merely incomplete opens: see `TraceData.problems`.
    """
    return Trace(FileSource(path))
