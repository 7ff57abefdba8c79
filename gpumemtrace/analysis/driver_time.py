"""Time spent in the driver for want of a cached block: segments, retries, emptied caches.

What the cache serves is not timed, on purpose: it takes well under a microsecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.lines import Lines
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["DriverFinder", "DriverTime", "DriverUse", "Flush", "find_flushes"]

_SEGMENTS, _RETRIES, _EMPTIED = range(3)
_MOST_NS = 1 << 53  # in a file made to hurt


@dataclass(frozen=True)
class Flush:
    """The cache went back to the driver: for a request that found no room, or on demand.

    ``kind``: ``retry`` or ``empty_cache``; ``device``: None for `torch.cuda.empty_cache`, which
    takes all of them; ``size_bytes``: what was asked for, None on demand.
    """

    kind: str
    time_ns: int
    duration_ns: int
    step: int
    phase: str | None
    device: int | None
    size_bytes: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return {
            "kind": self.kind,
            "time_s": self.time_ns / 1e9,
            "duration_s": self.duration_ns / 1e9,
            "step": self.step,
            "phase": self.phase,
            "device": self.device,
            "requested_bytes": self.size_bytes,
        }


@dataclass(frozen=True)
class DriverUse:
    """Calls of the driver and nanoseconds in them: for segments, retries, emptied caches.

    A retry's time includes that of the segment it got in the end, which is not counted again.
    """

    segments: int
    segment_ns: int
    retries: int
    retry_ns: int
    emptied: int
    emptied_ns: int

    @property
    def duration_ns(self) -> int:
        """All the time."""
        return self.segment_ns + self.retry_ns + self.emptied_ns


@dataclass(frozen=True)
class DriverTime:
    """Where the time went: in each step and phase (None = outside of any) that has any."""

    by_step: dict[int, DriverUse]
    by_phase: dict[str | None, DriverUse]
    flushes: tuple[Flush, ...]

    @property
    def duration_ns(self) -> int:
        """All the time."""
        return sum(use.duration_ns for use in self.by_phase.values())


class DriverFinder:
    """Adds up the driver's time as batches go by."""

    def __init__(self, trace: TraceData) -> None:
        """Prepare for one pass over ``trace``."""
        self._trace = trace
        self._by_step: dict[int, npt.NDArray[np.int64]] = {}
        self._by_phase: dict[int, npt.NDArray[np.int64]] = {}
        # The segments of each thread that came last: a retry may tell of the same time.
        self._last: dict[tuple[int, int], tuple[int, int, int]] = {}

    def begin(self, initial: dict[int, dict[str, int]]) -> None:
        """Take nothing: time has no value carried in."""

    def feed(self, batch: Batch, lines: Lines) -> None:
        """Take the next batch."""
        raw = batch.raw
        others = batch.other_rows
        kinds = raw["kind"][others]
        is_segment = (kinds == Kind.SEGMENT_ALLOC) | (kinds == Kind.SEGMENT_MAP)
        rows = others[is_segment | (kinds == Kind.RETRY) | (kinds == Kind.EMPTY_CACHE)]
        for row in rows.tolist():
            kind, step, phase = raw["kind"][row], int(batch.step[row]), int(batch.phase[row])
            took = min(int(raw["extra"][row]), _MOST_NS)
            caller = (int(raw["device"][row]), int(raw["thread"][row]))
            if kind == Kind.RETRY:
                self._add(step, phase, _RETRIES, 1, took)
                if self._last.pop(caller, None) == (took, step, phase):
                    self._add(step, phase, _SEGMENTS, 0, -took)
            elif kind == Kind.EMPTY_CACHE:
                self._add(step, phase, _EMPTIED, 1, took)
            elif took:  # else it was there when the recording began
                self._add(step, phase, _SEGMENTS, 1, took)
                self._last[caller] = (took, step, phase)

    def finish(self) -> DriverTime:
        """Return what was found."""
        return DriverTime(
            by_step={step: _use(sums) for step, sums in sorted(self._by_step.items())},
            by_phase={
                self._trace.phase_name(phase): _use(sums)
                for phase, sums in sorted(self._by_phase.items())
            },
            flushes=find_flushes(self._trace),
        )

    def _add(self, step: int, phase: int, what: int, count: int, took_ns: int) -> None:
        for sums, key in ((self._by_step, step), (self._by_phase, phase)):
            sums.setdefault(key, np.zeros((3, 2), np.int64))[what] += (count, took_ns)


def _use(sums: npt.NDArray[np.int64]) -> DriverUse:
    return DriverUse(*sums.ravel().tolist())


def find_flushes(trace: TraceData) -> tuple[Flush, ...]:
    """Return every time the cache went back to the driver, in order."""
    found = trace.records(Kind.RETRY, Kind.EMPTY_CACHE)
    flushes = []
    for row in range(len(found["kind"])):
        is_retry = found["kind"][row] == Kind.RETRY
        took, device = int(found["extra"][row]), int(found["device"][row])
        flushes.append(
            Flush(
                kind="retry" if is_retry else "empty_cache",
                # The record comes when it is over.
                time_ns=int(found["time_ns"][row]) - took,
                duration_ns=took,
                step=int(found["step"][row]),
                phase=trace.phase_name(int(found["phase"][row])),
                device=device if device >= 0 else None,
                size_bytes=int(found["size_bytes"][row]) if is_retry else None,
            )
        )
    return tuple(flushes)
