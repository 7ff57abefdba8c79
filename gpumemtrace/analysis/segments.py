"""The allocator's segments, block by block, at any instant; free bytes by cause at every event.

Replayed from the records alone, by the rules of PyTorch's caching allocator
(``c10/cuda/CUDACachingAllocator.cpp``), each step checked against the allocator's own counters in
the trace. A trace that does not tell of segments (made from plain events, or by another recorder)
has no known state: ``known`` is False, and nothing is guessed.

What is reserved but not active has one of five causes, the first that holds:

``private_pool``
    in a segment of a private pool (a CUDA graph's, a ``MemPool``'s): such segments serve what is
    routed to the pool and nothing else (``beginAllocateToPool``, ``PrivatePool``).
``other_stream``
    in a segment of another stream than the device's main one: a free block serves the stream that
    its segment was made for and no other (``Block::stream`` in ``BlockComparatorSize``). The main
    stream is the one that has asked for the most bytes so far.
``idle``
    a whole segment, or whole pages of an expandable one: what ``empty_cache`` would return
    (``release_blocks``: a block without neighbours; ``unmap_block``).
``small_pool``
    beside blocks in use in a segment for requests of up to 1 MiB (``get_pool``, ``kSmallSize``).
``interleaved``
    beside blocks in use in a segment for larger requests.

Their sum and the active bytes are the reserved bytes, at every record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.records import Batch
from gpumemtrace.trace_data import TraceData

__all__ = [
    "FREE_CAUSES",
    "Blocks",
    "FreeLines",
    "SegmentGroup",
    "SegmentState",
    "SegmentStream",
    "SegmentTotals",
    "Segments",
    "find_segments",
]

# In the order in which they are tried.
FREE_CAUSES = ("private_pool", "other_stream", "idle", "small_pool", "interleaved")

_STATES = np.array(["free", "live", "pending"])


@dataclass(frozen=True)
class Segments:
    """The segments of a device by address, a row each.

    ``base``: uint64; ``size_bytes``: int64; ``stream``: uint64, the one that it serves;
    ``pool_first``, ``pool_second``: uint64, the id of its private pool, 0 and 0 = none;
    ``is_small``: uint8, for requests of up to 1 MiB; ``page_bytes``: int64, what an expandable
    segment is mapped in, 0 = not expandable. An expandable segment counts as one for each stretch
    that is mapped.
    """

    base: npt.NDArray[np.uint64]
    size_bytes: npt.NDArray[np.int64]
    stream: npt.NDArray[np.uint64]
    pool_first: npt.NDArray[np.uint64]
    pool_second: npt.NDArray[np.uint64]
    is_small: npt.NDArray[np.uint8]
    page_bytes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.base)


@dataclass(frozen=True)
class Blocks:
    """The blocks of all segments of a device, in the order of `Segments`, then by address.

    ``segment``: int64, row of `Segments`; ``address``: uint64; ``size_bytes``: int64;
    ``requested_bytes``: int64, 0 where free; ``alloc``: int64, number of the alloc (row of
    `Trace.lifetimes`), -1 where free; ``state_id``: uint8, see ``state``; ``idle_bytes``: int64, of
    a free block, what ``empty_cache`` would return.
    """

    segment: npt.NDArray[np.int64]
    address: npt.NDArray[np.uint64]
    size_bytes: npt.NDArray[np.int64]
    requested_bytes: npt.NDArray[np.int64]
    alloc: npt.NDArray[np.int64]
    state_id: npt.NDArray[np.uint8]
    idle_bytes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.address)

    @property
    def state(self) -> npt.NDArray[np.str_]:
        """``free``; ``live``: handed out; ``pending``: given back, but in use on another stream."""
        return _STATES[self.state_id]

    @property
    def is_free(self) -> npt.NDArray[np.bool_]:
        """Which blocks are free."""
        is_free: npt.NDArray[np.bool_] = self.state_id == 0
        return is_free


@dataclass(frozen=True)
class SegmentGroup:
    """The segments of one stream and pool, which serve one another's requests.

    ``idle_bytes`` in ``idle_segments``: of ``free_bytes``, what ``empty_cache`` would return (in a
    private pool, after its release). ``largest_free_bytes``: the largest free block;
    ``largest_tail_bytes``: the largest at the end of an expandable segment, which could grow;
    ``kept_tail_bytes``: the largest of what ``empty_cache`` would leave of these.
    """

    stream: int
    pool: tuple[int, int]
    is_small: bool
    is_expandable: bool
    segments: int
    idle_segments: int
    reserved_bytes: int
    free_bytes: int
    idle_bytes: int
    largest_free_bytes: int
    largest_tail_bytes: int
    kept_tail_bytes: int

    @property
    def is_private(self) -> bool:
        """Whether the pool is a private one."""
        return self.pool != (0, 0)


@dataclass(frozen=True)
class SegmentTotals:
    """What a device's segments hold at one instant: after ``record``, counted over all records.

    ``record`` -1: before the first. ``phase``: index into `Trace.phase_names`, -1 = none.
    ``known``: whether the replay agrees with the allocator's counters; the rest means nothing
    where it does not. ``free_bytes``: cause (`FREE_CAUSES`) -> bytes; with ``allocated_bytes`` and
    ``pending_bytes`` they are ``reserved_bytes``.
    """

    device: int
    record: int
    time_ns: int
    step: int
    phase: int
    known: bool
    reserved_bytes: int
    allocated_bytes: int
    pending_bytes: int
    main_stream: int
    free_bytes: dict[str, int]
    groups: tuple[SegmentGroup, ...]

    @property
    def cached_bytes(self) -> int:
        """All free bytes: what is reserved but not active."""
        return sum(self.free_bytes.values())

    @property
    def releasable_bytes(self) -> int:
        """What ``empty_cache`` would return."""
        return sum(group.idle_bytes for group in self.groups if not group.is_private)

    @property
    def releasable_segments(self) -> int:
        """In how many segments it would find that."""
        return sum(group.idle_segments for group in self.groups if not group.is_private)


@dataclass(frozen=True)
class SegmentState(SegmentTotals):
    """The same with every segment and block."""

    segments: Segments
    blocks: Blocks


@dataclass(frozen=True)
class FreeLines:
    """Reserved, active and free bytes by cause at every record of a batch.

    All arrays have the batch's length. ``device``: int16, that of the record, -1 = none (the
    values mean nothing there); ``reserved``, ``active``, ``free`` (cause -> array): int64 bytes of
    it after the record; ``known``: bool. Reserved changes where memory is taken or given back,
    which is before the counters are read that say so; a block that needed new memory is in use from
    there on.
    """

    device: npt.NDArray[np.int16]
    reserved: npt.NDArray[np.int64]
    active: npt.NDArray[np.int64]
    free: dict[str, npt.NDArray[np.int64]]
    known: npt.NDArray[np.bool_]


class SegmentStream:
    """Replays the segments as batches go by."""

    def __init__(self) -> None:
        """Begin where nothing is reserved: at the beginning of a trace."""
        self._replay = _core.SegmentReplay()
        self._at = {"record": -1, "time_ns": 0, "step": 0, "phase": -1}

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices that have had records."""
        return tuple(self._replay.devices)

    def feed(self, batch: Batch, *, first: int = 0, end: int | None = None) -> None:
        """Take the records ``first`` to ``end`` (exclusive) of the next batch."""
        end = len(batch) if end is None else end
        if (first, end) == (0, len(batch)):
            self._replay.feed(batch.raw)
        else:
            self._replay.feed({name: column[first:end] for name, column in batch.raw.items()})
        self._note(batch, end)

    def feed_lines(self, batch: Batch) -> FreeLines:
        """Take the next batch, and return what holds at each of its records."""
        result = self._replay.feed_lines(batch.raw)
        self._note(batch, len(batch))
        return FreeLines(**(result | {"known": result["known"].view(np.bool_)}))

    def totals(self, device: int) -> SegmentTotals:
        """Return what the segments of a device hold as of now; looks at every block."""
        return SegmentTotals(**self._totals(device))

    def state(self, device: int) -> SegmentState:
        """Return the state of a device as of now, block by block."""
        blocks = self._replay.blocks(device)
        return SegmentState(
            **self._totals(device),
            segments=Segments(**self._replay.segments(device)),
            blocks=Blocks(**(blocks | {"state_id": blocks.pop("state")})),
        )

    def _totals(self, device: int) -> dict[str, Any]:
        totals = self._replay.totals(device)
        return self._at | {
            "device": device,
            "known": totals["known"],
            "reserved_bytes": totals["reserved"],
            "allocated_bytes": totals["allocated"],
            "pending_bytes": totals["pending"],
            "main_stream": totals["main_stream"],
            "free_bytes": totals["free"],
            "groups": tuple(SegmentGroup(**group) for group in self._replay.groups(device)),
        }

    def _note(self, batch: Batch, end: int) -> None:
        if end > 0:
            self._at = {
                "record": batch.first_record + end - 1,
                "time_ns": int(batch.raw["time_ns"][end - 1]),
                "step": int(batch.step[end - 1]),
                "phase": int(batch.phase[end - 1]),
            }


def find_segments(
    trace: TraceData,
    *,
    device: int | None = None,
    record: int | None = None,
    event: int | None = None,
    step: int | None = None,
    time_ns: int | None = None,
) -> SegmentState:
    """Return the segments of a device at one instant; at the end of the trace without one.

    ``device``: by default the first that has something allocated. ``record``: after that record
    (counted from 0 over all of them); ``event``: after that event; ``step``: at the end of that
    step; ``time_ns``: after the last record up to that time. Reads the trace up to there.

    Raises `ValueError` for more than one of them, and where the trace has no such step.
    """
    if sum(place is not None for place in (record, event, step, time_ns)) > 1:
        raise ValueError("an instant is one of record, event, step and time_ns")
    stream = SegmentStream()
    steps: tuple[int, int] | None = None
    for batch in trace.chunks(lead_in=True):
        end = len(batch)
        if record is not None:
            end = min(end, max(0, record + 1 - batch.first_record))
        elif event is not None and not batch.is_lead_in:
            events = batch.first_event + np.cumsum(batch.is_event)
            end = 0 if batch.first_event > event else int(np.searchsorted(events, event + 1)) + 1
            end = min(end, len(batch))
        elif step is not None:
            end = _first(batch.step > step, end)
        elif time_ns is not None:
            end = _first(batch.raw["time_ns"] > time_ns, end)
        if step is not None and len(batch):
            inside = batch.step[:end] if end else batch.step
            found = (int(inside.min()), int(inside.max()))
            steps = found if steps is None else (min(steps[0], found[0]), max(steps[1], found[1]))
        stream.feed(batch, end=end)
        if end < len(batch):
            break
    if step is not None and (steps is None or not steps[0] <= step <= steps[1]):
        has = "none" if steps is None else f"steps {steps[0]} to {steps[1]}"
        raise ValueError(f"step {step}: the trace has {has}")
    if device is None:
        device = next(iter(trace.active_devices), 0) if not stream.devices else stream.devices[0]
    return stream.state(device)


def _first(is_behind: npt.NDArray[np.bool_], end: int) -> int:
    return int(np.argmax(is_behind)) if is_behind.any() else end
