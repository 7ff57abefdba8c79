"""How large a request could have been, over the run, and when it fell below what phases ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.cached_walk import CachedWalk
from gpumemtrace.analysis.device_free import DeviceFree
from gpumemtrace.analysis.segments import FREE_CAUSES, SegmentStream, SegmentTotals
from gpumemtrace.analysis.serving import largest_request, serve
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind, PhaseFlags
from gpumemtrace.trace_data import TraceData

__all__ = ["CurveFinder", "PhaseNeed", "RequestCurve"]

# A sample looks at every block; more than so many are thinned out by whole steps.
_MOST_SAMPLES = 4000


@dataclass(frozen=True)
class RequestCurve:
    """A row for each mark (a step or a phase begins there); bytes at that instant, before it.

    ``time_ns``, ``step``: int64; ``phase``: int32, index into `Trace.phase_names` of the phase that
    begins, -1 where a step does. ``reserved``, ``active``, ``free`` (cause -> array): int64.
    ``cached``, ``with_device``, ``after_flush``: int64, the largest request of the main stream that
    would succeed (see `LargestRequest`), -1 = not known. ``every``: of so many steps one is here.
    """

    time_ns: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]
    phase: npt.NDArray[np.int32]
    reserved: npt.NDArray[np.int64]
    active: npt.NDArray[np.int64]
    free: dict[str, npt.NDArray[np.int64]]
    cached: npt.NDArray[np.int64]
    with_device: npt.NDArray[np.int64]
    after_flush: npt.NDArray[np.int64]
    every: int

    def __len__(self) -> int:
        return len(self.time_ns)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values, a list a column."""
        columns = ("time_ns", "step", "phase", "reserved", "active")
        largest = ("cached", "with_device", "after_flush")
        return {
            **{name: getattr(self, name).tolist() for name in columns},
            "free": {cause: self.free[cause].tolist() for cause in FREE_CAUSES},
            **{name: getattr(self, name).tolist() for name in largest},
            "every": self.every,
        }


@dataclass(frozen=True)
class PhaseNeed:
    """What the largest request of a phase would get each time the phase begins.

    ``largest_request_bytes``: the largest that the phase ever made. ``entries``: times it began
    (that the curve holds); ``reserved_first_bytes``, ``reserved_last_bytes``: at the first and the
    last of them; ``largest_first_bytes``, ``largest_last_bytes``: the largest request that the
    cache would have served then. ``first_miss_step``: the first step in which it would not have
    served that request though it had before; ``misses``: how often so. ``first_flush_step``: the
    first in which only a flush of the cache would have made room, ``first_fail_step``: in which
    nothing would. None: never; the last two also where it is not known what the device has free.
    """

    phase: str
    largest_request_bytes: int
    entries: int
    reserved_first_bytes: int
    reserved_last_bytes: int
    largest_first_bytes: int
    largest_last_bytes: int
    misses: int
    first_miss_step: int | None
    first_flush_step: int | None
    first_fail_step: int | None


class CurveFinder:
    """Samples the segments of devices at the marks, for `SegmentWalk`."""

    def __init__(self, trace: TraceData, cached: CachedWalk, devices: Sequence[int]) -> None:
        """Choose which marks of ``trace`` to sample; ``cached``: of a first pass."""
        self._trace = trace
        self._devices = {device: cached.device(device) for device in devices}
        marks = len(trace.records(Kind.STEP)["kind"]) + len(_entered(trace))
        self._every = max(1, -(-marks // _MOST_SAMPLES))
        self._samples: dict[int, list[SegmentTotals]] = {device: [] for device in devices}
        self._phases: list[int] = []

    def cuts(self, batch: Batch) -> npt.NDArray[np.intp]:
        """Return the places of the marks in a batch before which to sample."""
        raw = batch.raw
        rows = batch.other_rows
        kind = raw["kind"][rows]
        entered = (kind == Kind.PHASE) & ((raw["flags"][rows] & PhaseFlags.ENTERED) != 0)
        wanted = ((kind == Kind.STEP) | entered) & (batch.step[rows] % self._every == 0)
        chosen: npt.NDArray[np.intp] = rows[wanted]
        return chosen

    def sample(self, stream: SegmentStream, batch: Batch, row: int) -> None:
        """Take the segments as they are before the mark at ``row`` of ``batch``."""
        for device, samples in self._samples.items():
            samples.append(stream.totals(device))
        is_step = batch.raw["kind"][row] == Kind.STEP
        self._phases.append(-1 if is_step else int(batch.phase[row]))

    def finish(self, device: int) -> RequestCurve:
        """Return the curve of a device."""
        samples, free = self._samples[device], self._devices[device].free
        rows = [s for s in samples if s.known]
        phases = [p for s, p in zip(samples, self._phases, strict=True) if s.known]
        largest = [
            largest_request(s, device_free_bytes=free.at(s.record, s.reserved_bytes)) for s in rows
        ]

        def column(values: list[int]) -> npt.NDArray[np.int64]:
            return np.array(values, np.int64)

        return RequestCurve(
            time_ns=column([s.time_ns for s in rows]),
            step=column([s.step for s in rows]),
            phase=np.array(phases, np.int32),
            reserved=column([s.reserved_bytes for s in rows]),
            active=column([s.allocated_bytes + s.pending_bytes for s in rows]),
            free={cause: column([s.free_bytes[cause] for s in rows]) for cause in FREE_CAUSES},
            cached=column([each.cached_bytes for each in largest]),
            with_device=column([_or_unknown(each.with_device_bytes) for each in largest]),
            after_flush=column([_or_unknown(each.after_flush_bytes) for each in largest]),
            every=self._every,
        )

    def needs(self, device: int) -> tuple[PhaseNeed, ...]:
        """Return what the largest request of each phase on a device would have got."""
        found = []
        for phase, name in enumerate(self._trace.phase_names):
            request = int(self._devices[device].largest[phase])
            entries = [
                sample
                for sample, at in zip(self._samples[device], self._phases, strict=True)
                if at == phase and sample.known and sample.reserved_bytes
            ]
            if request and entries:
                found.append(_need(name, request, entries, self._devices[device].free))
        return tuple(found)


def _need(name: str, request: int, entries: list[SegmentTotals], free: DeviceFree) -> PhaseNeed:
    outcomes = [
        serve(
            entry,
            request,
            device_free_bytes=free.at(entry.record, entry.reserved_bytes),
        ).outcome
        for entry in entries
    ]
    served = outcomes.index("cached") if "cached" in outcomes else len(outcomes)
    missed = [
        entry.step
        for entry, outcome in zip(entries[served:], outcomes[served:], strict=True)
        if outcome != "cached"
    ]
    first, last = largest_request(entries[0]), largest_request(entries[-1])
    return PhaseNeed(
        phase=name,
        largest_request_bytes=request,
        entries=len(entries),
        reserved_first_bytes=entries[0].reserved_bytes,
        reserved_last_bytes=entries[-1].reserved_bytes,
        largest_first_bytes=first.cached_bytes,
        largest_last_bytes=last.cached_bytes,
        misses=len(missed),
        first_miss_step=missed[0] if missed else None,
        first_flush_step=_first_step(entries, outcomes, "after_flush"),
        first_fail_step=_first_step(entries, outcomes, "fails"),
    )


def _first_step(entries: list[SegmentTotals], outcomes: list[str], wanted: str) -> int | None:
    return entries[outcomes.index(wanted)].step if wanted in outcomes else None


def _entered(trace: TraceData) -> npt.NDArray[np.intp]:
    flags = trace.records(Kind.PHASE)["flags"]
    return np.flatnonzero(flags & PhaseFlags.ENTERED)


def _or_unknown(value: int | None) -> int:
    return -1 if value is None else value
