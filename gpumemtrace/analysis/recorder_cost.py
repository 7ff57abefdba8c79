"""What the recording itself cost, from what the recorder said at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpumemtrace.analysis.aged import find_aged
from gpumemtrace.analysis.lines import Lines
from gpumemtrace.records import Batch
from gpumemtrace.trace_data import TraceData

__all__ = ["HOOK_NS_PER_EVENT", "READ_NS", "CostFinder", "RecorderCost"]

# What the hook adds to an alloc or free, and to an alloc after which it reads the allocator's
# counter too. Measured on the host of an H200: 70 ns a pair, 165 for one with a reading.
# (benchmarks/hook_overhead.py, benchmarks/results/2026-11-30-h200.md)
HOOK_NS_PER_EVENT = 35.0
READ_NS = 95.0


@dataclass(frozen=True)
class RecorderCost:
    """The cost of a recording; None where the recorder did not say (a killed run).

    ``events``: recorded ones, in the file or left out of it since, to keep it small. ``hook_s`` is
    an estimate: events times `HOOK_NS_PER_EVENT`, readings times `READ_NS`; all else is counted.
    ``ring_high_water``: the most events that waited in the ring, of ``ring_capacity``. ``stalls``:
    how often the program waited for room in it, ``stalled_s`` in all.
    """

    events: int
    readings: int
    events_per_s: float | None
    hook_s: float
    hook_share: float | None
    drain_cpu_s: float | None
    drain_share: float | None
    ring_high_water: int | None
    ring_capacity: int | None
    bytes_written: int
    bytes_per_event: float | None
    bytes_per_hour: float | None
    stalls: int
    stalled_s: float
    dropped_events: int

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class CostFinder:
    """Counts what the hook did as batches go by."""

    def __init__(self, trace: TraceData) -> None:
        """Prepare for one pass over ``trace``."""
        self._trace = trace
        self._readings = 0

    def begin(self, initial: dict[int, dict[str, int]]) -> None:
        """Take nothing."""

    def feed(self, batch: Batch, lines: Lines) -> None:
        """Take the next batch."""
        extra = batch.raw["extra"]
        in_others = np.count_nonzero(extra[batch.other_rows])
        self._readings += int(np.count_nonzero(extra) - in_others)

    def finish(self) -> RecorderCost:
        """Return the cost."""
        trace = self._trace
        totals = trace.footer.get("totals")
        totals = totals if isinstance(totals, dict) else {}
        cpu_ns = totals.get("drain_cpu_ns")
        stalls = trace.run_record.get("stalls")
        stalls = stalls if isinstance(stalls, dict) else {}
        seconds = trace.duration_ns / 1e9
        # Also those that a limit of disk space has left out since.
        events, written = len(trace) + find_aged(trace).left_out_events, trace.file_bytes
        hook_s = (events * HOOK_NS_PER_EVENT + self._readings * READ_NS) / 1e9
        return RecorderCost(
            events=events,
            readings=self._readings,
            events_per_s=events / seconds if seconds else None,
            hook_s=hook_s,
            hook_share=hook_s / seconds if seconds else None,
            drain_cpu_s=None if cpu_ns is None else cpu_ns / 1e9,
            drain_share=cpu_ns / 1e9 / seconds if cpu_ns is not None and seconds else None,
            ring_high_water=totals.get("ring_high_water"),
            ring_capacity=totals.get("ring_capacity"),
            bytes_written=written,
            bytes_per_event=written / events if events and written else None,
            bytes_per_hour=written / seconds * 3600 if seconds and written else None,
            stalls=stalls.get("count") or 0,
            stalled_s=(stalls.get("total_ns") or 0) / 1e9,
            dropped_events=trace.dropped_events,
        )
