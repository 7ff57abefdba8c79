"""The phase ``init`` that a run begins with: how long it took, and whether its peak is the run's.

Loading a model often takes longer than what is to be looked at, the steps; over time they are then
squeezed into the last centimetre of a picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpumemtrace.analysis.lines import ALLOCATOR_LINES, Lines, LineStream
from gpumemtrace.analysis.peaks import find_peaks
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["InitStretch", "find_init", "without_long_init"]

_NAME = "init"
# Of the time of a run: when init takes more, the rest is squeezed.
_LONG = 0.5

_Values = dict[int, dict[str, int]]


@dataclass(frozen=True)
class InitStretch:
    """``init`` from the first record on; times in nanoseconds since the trace began.

    ``highest``, ``final``: device -> allocator line -> the most bytes in it, and those at its end.
    ``has_failures``: whether a request failed in it.
    """

    start_ns: int
    end_ns: int
    highest: _Values
    final: _Values
    has_failures: bool

    @property
    def ends_highest(self) -> bool:
        """Whether no line was higher in it than at its end, so that what follows is as high."""
        return self.highest == self.final


def find_init(trace: TraceData) -> InitStretch | None:
    """Return the ``init`` that a trace begins with; None without one. Reads no further than that.

    It ends where the thread that drives the steps goes to another phase, or a step ends.
    """
    if _NAME not in trace.phase_names:
        return None
    highest: _Values = {}
    final: _Values = {}
    has_begun = has_failures = False
    start_ns: int | None = None
    for batch, lines in LineStream(trace):
        if start_ns is None:
            start_ns = int(batch.raw["time_ns"][0])
        end = len(batch)
        for row, is_init in _changes(trace, batch):
            if not is_init:
                end = row
                break
            has_begun = True
        is_over = end < len(batch)
        if is_over and not has_begun:
            return None
        _add(highest, final, lines, end)
        has_failures |= bool((batch.rows_of(Kind.ALLOC_FAILED) < end).any())
        if is_over:
            end_ns = int(batch.raw["time_ns"][end])
            return InitStretch(start_ns, end_ns, highest, final, has_failures)
    return None


def without_long_init(trace: TraceData) -> InitStretch | None:
    """Return the ``init`` that can be left out to see the rest: long, and without the run's peaks.

    None where it takes less than half of the time, or holds the peak of a line or a failed request.
    """
    init = find_init(trace)
    if init is None or init.has_failures:
        return None
    start_ns, end_ns = trace.time_span_ns
    if init.end_ns - start_ns <= _LONG * (end_ns - start_ns):
        return None
    if not init.ends_highest:
        rest = {found.device: found for found in find_peaks(_after(trace, init))}
        for device, lines in init.highest.items():
            for name, size in lines.items():
                peak = rest[device].lines[name] if device in rest else None
                if peak is not None and peak.size_bytes < size:
                    return None
    return init


def _after(trace: TraceData, init: InitStretch) -> TraceData:
    return trace.slice(time_ns=(init.end_ns, trace.time_span_ns[1] + 1))


def _changes(trace: TraceData, batch: Batch) -> Iterator[tuple[int, bool]]:
    """Yield the driving thread's phase and step marks, and whether ``init`` is open then."""
    raw = batch.raw
    for row in batch.other_rows.tolist():
        if raw["kind"][row] == Kind.STEP:
            yield row, False
        elif raw["kind"][row] == Kind.PHASE and raw["thread"][row] == trace.driving_thread:
            path = int(batch.phase_path[row])
            yield row, path >= 0 and trace.phase_paths[path][0] == _NAME


def _add(highest: _Values, final: _Values, lines: Lines, end: int) -> None:
    for device in set(lines.devices) - {-1}:
        rows = np.flatnonzero(lines.device[:end] == device)
        if not len(rows):
            continue
        most, now = highest.setdefault(device, {}), final.setdefault(device, {})
        for name in ALLOCATOR_LINES:
            values = lines.values[name][rows]
            most[name] = max(most.get(name, 0), int(values.max()))
            now[name] = int(values[-1])
