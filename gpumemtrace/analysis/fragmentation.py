"""Fragmentation: what is cached and why, what a request could get of it, and what pins it.

The *index* is 1 - largest free block / all free bytes, of the blocks that a large request of the
main stream could take: 0 when they are one block, near 1 when they are many small ones. (The usual
measure of external fragmentation.) *Unusable* is the share of those bytes that lies in blocks too
small for a given request: the "unusable free space index" of M. Gorman, A. Whitcroft, "The What,
The Why and the Where To of Anti-Fragmentation", Ottawa Linux Symposium 2006.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.births import find_births
from gpumemtrace.analysis.cached_series import CachedSeries
from gpumemtrace.analysis.cached_walk import CachedWalk
from gpumemtrace.analysis.request_curve import CurveFinder, PhaseNeed, RequestCurve
from gpumemtrace.analysis.segment_map import SegmentMapFinder
from gpumemtrace.analysis.segment_walk import SegmentWalk
from gpumemtrace.analysis.segments import SegmentState, find_segments
from gpumemtrace.analysis.serving import LargestRequest, largest_request
from gpumemtrace.trace_data import TraceData

__all__ = [
    "Fragmentation",
    "FragmentationFinder",
    "PinnedSegment",
    "PinningBlock",
    "find_fragmentation",
    "fragmentation_index",
    "unusable_share",
]

_MOST_BLOCKS = 3


@dataclass(frozen=True)
class PinningBlock:
    """A block in use that keeps a segment from being given back or used as a whole.

    ``event``: of its alloc, -1 = before the slice. ``age_ns``, ``age_steps``: at the instant.
    """

    address: int
    size_bytes: int
    requested_bytes: int
    state: str
    event: int
    step: int
    phase: str | None
    thread: int
    age_ns: int
    age_steps: int


@dataclass(frozen=True)
class PinnedSegment:
    """A segment that is partly free. ``blocks``: the oldest of ``block_count`` that pin it."""

    base: int
    size_bytes: int
    stream: int
    is_small: bool
    is_private: bool
    free_bytes: int
    largest_free_bytes: int
    block_count: int
    blocks: tuple[PinningBlock, ...]


@dataclass(frozen=True)
class Fragmentation:
    """One device at one instant, and over the trace; see `find_fragmentation`.

    ``known``: False where the trace does not tell of the allocator's segments; the rest is then
    empty. ``phase``: the innermost one. ``index``: None when nothing is free. ``largest``: of the
    main stream first, then of the others. ``device_free_bytes``: None where no sample tells.
    ``pinned``: most free bytes first.
    """

    device: int
    known: bool
    phase: str | None
    state: SegmentState
    index: float | None
    largest: tuple[LargestRequest, ...]
    device_free_bytes: int | None
    pinned: tuple[PinnedSegment, ...]
    pinned_segments: int
    needs: tuple[PhaseNeed, ...]
    curve: RequestCurve
    series: CachedSeries

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values. Keys are added by later versions, none goes away."""
        state = self.state
        return {
            "device": self.device,
            "known": self.known,
            "at": {
                "record": state.record,
                "time_s": state.time_ns / 1e9,
                "step": state.step,
                "phase": self.phase,
            },
            "reserved_bytes": state.reserved_bytes,
            "allocated_bytes": state.allocated_bytes,
            "pending_bytes": state.pending_bytes,
            "cached_bytes": state.cached_bytes,
            "free_bytes": dict(state.free_bytes),
            "index": self.index,
            "main_stream": state.main_stream,
            "largest": [asdict(largest) for largest in self.largest],
            "device_free_bytes": self.device_free_bytes,
            "releasable_bytes": state.releasable_bytes,
            "pinned": [asdict(segment) for segment in self.pinned],
            "pinned_segments": self.pinned_segments,
            "phases": [asdict(need) for need in self.needs],
            "curve": self.curve.to_dict(),
        }


def fragmentation_index(state: SegmentState, *, stream: int | None = None) -> float | None:
    """Return 1 - largest / sum of the free blocks that a large request of ``stream`` could take.

    By default of the main stream. None when there are none.
    """
    sizes = _usable_sizes(state, stream)
    total = int(sizes.sum())
    return 1.0 - int(sizes.max()) / total if total else None


def unusable_share(
    state: SegmentState, request_bytes: int, *, stream: int | None = None
) -> float | None:
    """Return the share of those bytes in blocks that are smaller than ``request_bytes``."""
    sizes = _usable_sizes(state, stream)
    total = int(sizes.sum())
    return int(sizes[sizes < request_bytes].sum()) / total if total else None


def find_fragmentation(
    trace: TraceData,
    *,
    device: int | None = None,
    step: int | None = None,
    time_ns: int | None = None,
    event: int | None = None,
    top: int = 10,
) -> Fragmentation:
    """Return the fragmentation of a device at one instant, and how it went over the trace.

    ``device``: by default the first with allocations. The instant: the end of ``step``, ``time_ns``
    or ``event``; by default the one with the most cached bytes that are not idle. ``top``: segments
    to list.

    Raises `ValueError` for a device without allocations, more than one instant, or no such step.
    """
    if sum(place is not None for place in (step, time_ns, event)) > 1:
        raise ValueError("an instant is one of event, step and time_ns")
    devices = trace.active_devices
    if device is None:
        device = devices[0] if devices else 0
    elif device not in devices:
        has = ", ".join(map(str, devices)) or "none"
        raise ValueError(f"device {device} has no allocations: those with some are {has}")
    cached = CachedWalk(trace)
    cached.begin()
    for batch in trace.chunks():
        cached.feed(batch)
    finder = FragmentationFinder(trace, cached, devices=(device,))
    for batch in trace.chunks(lead_in=True):
        finder.walk.feed(batch)
    states = None
    if not step is time_ns is event is None:
        at = find_segments(trace, device=device, step=step, time_ns=time_ns, event=event)
        states = {device: at}
    (found,) = finder.finish(states, top=top)
    return found


class FragmentationFinder:
    """Finds the fragmentation of several devices, in a second pass after that of `CachedWalk`."""

    def __init__(
        self,
        trace: TraceData,
        cached: CachedWalk,
        *,
        devices: Sequence[int],
        map_finder: SegmentMapFinder | None = None,
    ) -> None:
        """Prepare ``walk``, which takes the second pass; ``map_finder`` shares it."""
        self._trace = trace
        self._cached = {device: cached.device(device) for device in devices}
        self._series = {device: of.cached.finish() for device, of in self._cached.items()}
        self._curve = CurveFinder(trace, cached, devices)
        self.walk = SegmentWalk(
            has_segments=cached.has_segments,
            curve=self._curve,
            records={
                device: None if series.worst is None else int(series.record[series.worst])
                for device, series in self._series.items()
            },
            map_finder=map_finder,
        )

    def finish(
        self, states: Mapping[int, SegmentState] | None = None, *, top: int = 10
    ) -> tuple[Fragmentation, ...]:
        """Return it for each device, at the worst instant or as in ``states``."""
        known = self.walk.states() if states is None else states
        return tuple(self._of_device(number, state, top) for number, state in known.items())

    def _of_device(self, number: int, state: SegmentState, top: int) -> Fragmentation:
        device_free = self._cached[number].free.at(state.record, state.reserved_bytes)
        streams = {g.stream for g in state.groups if not g.is_private} | {state.main_stream}
        pinned, count = _find_pinned(self._trace, state, top) if state.known else ((), 0)
        return Fragmentation(
            device=number,
            known=state.known,
            phase=self._trace.phase_name(state.phase),
            state=state,
            index=fragmentation_index(state) if state.known else None,
            largest=tuple(
                largest_request(state, stream=stream, device_free_bytes=device_free)
                for stream in sorted(streams, key=lambda each: (each != state.main_stream, each))
                if state.known
            ),
            device_free_bytes=device_free,
            pinned=pinned,
            pinned_segments=count,
            needs=self._curve.needs(number),
            curve=self._curve.finish(number),
            series=self._series[number],
        )


def _usable_sizes(state: SegmentState, stream: int | None) -> npt.NDArray[np.int64]:
    stream = state.main_stream if stream is None else stream
    segments, blocks = state.segments, state.blocks
    usable = (segments.stream == stream) & (segments.is_small == 0)
    usable &= (segments.pool_first == 0) & (segments.pool_second == 0)
    sizes: npt.NDArray[np.int64] = blocks.size_bytes[blocks.is_free & usable[blocks.segment]]
    return sizes


def _find_pinned(
    trace: TraceData, state: SegmentState, top: int
) -> tuple[tuple[PinnedSegment, ...], int]:
    """Return the segments with the most free bytes beside blocks in use, and how many there are."""
    segments, blocks = state.segments, state.blocks
    count = len(segments)
    free = np.bincount(blocks.segment, np.where(blocks.is_free, blocks.size_bytes, 0), count)
    used = np.bincount(blocks.segment, ~blocks.is_free, count).astype(np.int64)
    candidates = np.flatnonzero((free > 0) & (used > 0))
    chosen = candidates[np.argsort(-free[candidates], kind="stable")][:top]
    oldest = []
    for i in chosen.tolist():
        mine = np.flatnonzero((blocks.segment == i) & ~blocks.is_free)
        oldest.append(mine[np.argsort(blocks.alloc[mine])][:_MOST_BLOCKS])
    rows = np.concatenate([np.zeros(0, np.intp), *oldest]).astype(np.intp)
    births = find_births(trace, blocks.alloc[rows])
    states = blocks.state
    pinning = [
        PinningBlock(
            address=int(blocks.address[row]),
            size_bytes=int(blocks.size_bytes[row]),
            requested_bytes=int(blocks.requested_bytes[row]),
            state=str(states[row]),
            event=int(births.event[k]),
            step=int(births.step[k]),
            phase=trace.phase_name(int(births.phase[k])),
            thread=int(births.thread[k]),
            age_ns=state.time_ns - int(births.time_ns[k]),
            age_steps=state.step - int(births.step[k]),
        )
        for k, row in enumerate(rows.tolist())
    ]
    found = []
    done = 0
    for i, mine in zip(chosen.tolist(), oldest, strict=True):
        free_here = blocks.size_bytes[(blocks.segment == i) & blocks.is_free]
        found.append(
            PinnedSegment(
                base=int(segments.base[i]),
                size_bytes=int(segments.size_bytes[i]),
                stream=int(segments.stream[i]),
                is_small=bool(segments.is_small[i]),
                is_private=bool(segments.pool_first[i] or segments.pool_second[i]),
                free_bytes=int(free[i]),
                largest_free_bytes=int(free_here.max()),
                block_count=int(used[i]),
                blocks=tuple(pinning[done : done + len(mine)]),
            )
        )
        done += len(mine)
    return tuple(found), len(candidates)
