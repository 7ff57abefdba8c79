"""The gaps between the five lines, named: at any instant, at the peaks, and in each phase.

::

    requested -> allocated     rounding         what blocks are larger than their requests
    allocated -> active        pending          freed, but another stream is not done with it
    active    -> reserved      cached           the allocator's cache
    reserved  -> device used   outside          this process outside PyTorch: CUDA context and
                                                modules, NCCL, libraries
                               others           other processes, as NVML tells
                               unattributed     in use, and charged to no process (the driver)
    device used -> capacity    device_free

Where NVML does not tell each process's figure (in most containers), ``outside`` holds all of it
and ``own_is_known`` is False. Device used is sampled. What lies outside is taken from samples
behind which reserved stood still; until the next of those device used is taken to move with
reserved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.analysis.gap_results import (
    GAPS,
    QUANTITIES,
    DeviceGaps,
    Extreme,
    Gaps,
    OrderBreak,
    OutsideChange,
    Place,
)
from gpumemtrace.analysis.lines import ALLOCATOR_LINES, Lines, LineStream, feed_lines
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = [
    "GAPS",
    "QUANTITIES",
    "DeviceGaps",
    "Extreme",
    "GapFinder",
    "Gaps",
    "OrderBreak",
    "OutsideChange",
    "Place",
    "find_gaps",
    "gaps_at",
]

_SAME_CALL = (
    Kind.SEGMENT_ALLOC,
    Kind.SEGMENT_MAP,
    Kind.SEGMENT_POOL,
    Kind.SEGMENT_FREE,
    Kind.SEGMENT_UNMAP,
    Kind.RETRY,
    Kind.STATS,
)
_INTERVAL_MS = 50  # of samples of the device, where the trace does not say it
_MOST_INTERVAL_MS = 1_000_000_000  # in a file made to hurt


def find_gaps(trace: TraceData) -> tuple[DeviceGaps, ...]:
    """Return the gaps of every device that has records, in one pass over the trace."""
    finder = GapFinder(trace)
    return finder.finish(feed_lines(trace, finder))


def gaps_at(trace: TraceData, event: int, *, device: int = 0) -> Gaps:
    """Return the gaps of a device when alloc or free number ``event`` is done.

    ``outside`` and what follows from it are as sampled until then. Raises `ValueError` when the
    trace has no such event, or the device no record until then.
    """
    if not 0 <= event < len(trace):
        raise ValueError(f"event {event}: the trace has {len(trace):,} events, from 0 on")
    finder = GapFinder(trace)
    stream = LineStream(trace)
    has_begun = is_reached = False
    for batch, lines in stream:
        if not has_begun:
            has_begun = True
            finder.begin(stream.initial)
        seen = batch.first_event + np.cumsum(batch.is_event)
        end = 0 if is_reached else int(np.searchsorted(seen, event + 1)) + 1
        is_reached = end <= len(batch)
        # What follows in the same call of the allocator: the segment that it took.
        while end < len(batch) and batch.raw["kind"][end] in _SAME_CALL:
            end += 1
        finder.feed_part(batch, lines, 0, min(end, len(batch)))
        if end < len(batch):
            break
    found = finder.now(device)
    if found is None:
        raise ValueError(f"device {device} has no record until event {event}")
    return found


class GapFinder:
    """Finds the gaps as batches go by; see `find_gaps`."""

    def __init__(self, trace: TraceData) -> None:
        """Prepare for one pass over ``trace``."""
        self._trace = trace
        self._core = _core.LineGaps()

    def begin(self, initial: dict[int, dict[str, int]]) -> None:
        """Take the lines as they are before the first record."""
        for device, lines in initial.items():
            self._core.begin(device, **lines)

    def feed(self, batch: Batch, lines: Lines) -> None:
        """Take the next batch."""
        columns: dict[str, npt.NDArray[Any]] = {
            name: lines.values[name] for name in ALLOCATOR_LINES
        }
        columns |= {"uncertain": lines.uncertain.view(np.uint8), "device": lines.device}
        columns |= {"step": batch.step, "phase_path": batch.phase_path}
        self._core.feed(batch.raw, columns, batch.first_event)

    def feed_part(self, batch: Batch, lines: Lines, first: int, end: int) -> None:
        """Take records ``first`` to ``end`` (exclusive) of a batch."""
        part = slice(first, end)
        events = batch.first_event + int(np.count_nonzero(batch.is_event[:first]))
        cut = batch.window(first, end, first_event=events, is_lead_in=batch.is_lead_in)
        values = {name: line[part] for name, line in lines.values.items()}
        self.feed(cut, Lines(cut, values, lines.device[part], lines.uncertain[part], lines.devices))

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices that have had records."""
        return tuple(self._core.devices)

    def now(self, device: int, *, until_ns: int | None = None) -> Gaps | None:
        """Return the gaps of a device after the last record; None when it had none yet.

        ``until_ns``: the time of the next one, where it is known.
        """
        if until_ns is not None:
            self._core.pass_time(device, until_ns)
        state = self._core.devices.get(device)
        return None if state is None else _as_gaps(state["now"], own_is_known=state["own_is_known"])

    def finish(self, stream: LineStream) -> tuple[DeviceGaps, ...]:
        """Return what was found in the pass of ``stream``."""
        self._core.finish()
        has_stats = stream.has_stats
        return tuple(
            self._of_device(number, state, has_stats=has_stats.get(number, False))
            for number, state in self._core.devices.items()
        )

    def _of_device(self, number: int, state: dict[str, Any], *, has_stats: bool) -> DeviceGaps:
        own_is_known = state["own_is_known"]
        unknown = set() if has_stats else {"active", "reserved", "pending", "cached", "outside"}
        if not has_stats:
            unknown |= {"device_free_with_cached"}

        def extremes(found: dict[str, Any]) -> dict[str, Extreme]:
            return {
                name: Extreme(
                    found[name][0],
                    self._place(found[name][1]),
                    _as_gaps(found[name][2], own_is_known=own_is_known, has_stats=has_stats),
                )
                for name in QUANTITIES
                if name in found and name not in unknown
            }

        paths = self._trace.phase_paths
        return DeviceGaps(
            device=number,
            own_is_known=own_is_known,
            highest=extremes(state["run"]),
            phases={
                paths[path] if path >= 0 else (): extremes(found)
                for path, found in state["paths"].items()
            },
            outside=tuple(self._changes(state)) if has_stats else (),
            breaks=tuple(
                OrderBreak(
                    pair,
                    reason,
                    records,
                    most,
                    tuple((self._place(when), lower, upper) for when, lower, upper in first),
                )
                for pair, reason, records, most, first in state["breaks"]
            ),
        )

    def _changes(self, state: dict[str, Any]) -> Iterator[OutsideChange]:
        last = 0
        for i, (before, after, lines) in enumerate(state["outside"]):
            place = self._place(after)
            # A figure that has not changed is not written down at every look at it.
            since_ns = place.time_ns - self._interval_ns
            since_ns = max(since_ns, before["time_ns"] if i else self._trace.marks.first_ns)
            phases = self._phases_between(since_ns, place.time_ns) or [place.phase or ()]
            yield OutsideChange(
                since_ns=since_ns,
                after=place,
                phase=phases[0],
                possible_phases=tuple(phases),
                outside_bytes=lines["outside"],
                change_bytes=lines["outside"] - last,
                gaps=_as_gaps(lines, own_is_known=state["own_is_known"]),
            )
            last = lines["outside"]

    @property
    def _interval_ns(self) -> int:
        interval_ms = self._trace.run_record.get("device_sample_interval_ms")
        interval_ms = interval_ms if isinstance(interval_ms, int) else _INTERVAL_MS
        return int(min(interval_ms, _MOST_INTERVAL_MS) * 1e6)

    def _phases_between(self, start_ns: int, end_ns: int) -> list[tuple[str, ...]]:
        """Return the phases of the driving thread in that time, the one with the most of it first.

        () stands for no phase.
        """
        spans = self._trace.phases
        mine = spans.thread == self._trace.driving_thread
        start = np.maximum(spans.start_ns[mine], start_ns)
        spent_ns = np.maximum(np.minimum(spans.end_ns[mine], end_ns) - start, 0)
        shares = np.zeros(len(spans.paths) + 1)
        np.add.at(shares, spans.path[mine], spent_ns)
        shares[-1] = end_ns - start_ns - spent_ns.sum()
        paths = [*spans.paths, ()]
        return [paths[i] for i in np.argsort(-shares, kind="stable").tolist() if shares[i] > 0]

    def _place(self, when: dict[str, int]) -> Place:
        path = when["phase_path"]
        return Place(
            when["time_ns"],
            when["event"],
            when["step"],
            self._trace.phase_paths[path] if path >= 0 else None,
        )


def _as_gaps(lines: dict[str, int], *, own_is_known: bool, has_stats: bool = True) -> Gaps:
    def known(name: str) -> int | None:
        return None if lines[name] == -1 else lines[name]

    used, capacity = known("device_used"), known("capacity")
    reserved = lines["reserved"] if has_stats else None
    return Gaps(
        requested=lines["requested"],
        allocated=lines["allocated"],
        active=lines["active"],
        reserved=reserved,
        device_used=used,
        capacity=capacity,
        rounding=lines["allocated"] - lines["requested"],
        pending=lines["active"] - lines["allocated"],
        cached=None if reserved is None else reserved - lines["active"],
        outside=known("outside") if has_stats else None,
        others=known("others"),
        unattributed=known("unattributed"),
        device_free=None if used is None or capacity is None else capacity - used,
        own_is_known=own_is_known,
    )
