"""One device's history in a snapshot, as the records of a trace.

The entries say what was requested; what the allocator made of it, and what it had reserved, is
followed along, so that the lines of the trace are those of the run. What was there before the first
entry is found from the end: the segments of the snapshot, less what was taken since, and what was
given back since; blocks that are freed, or are there at the end, and were never allocated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gpumemtrace.imports.block_sizes import BlockSizes, rounded_to_512
from gpumemtrace.imports.snapshot import Entry, Segment
from gpumemtrace.schema import Kind, SegmentFlags, StatsCause

__all__ = ["DeviceHistory", "Record"]

_SMALL_REQUEST = 1 << 20
_SMALL_SEGMENT = 2 << 20


class Record(NamedTuple):
    """A record of the trace without its time, thread and device."""

    kind: Kind
    address: int = 0
    size_bytes: int = 0
    stream: int = 0
    extra: int = 0
    flags: int = 0
    site: int = 0


class DeviceHistory:
    """Follows the allocator of one device through the entries of a snapshot.

    ``contradictions`` counts entries that can't be: a free of what is free, memory that is handed
    out twice. ``ignored`` counts the actions that are not known, by name.
    """

    def __init__(
        self, entries: tuple[Entry, ...], segments: Iterable[Segment], settings: Mapping[str, Any]
    ) -> None:
        """Take a device's history and the segments with which it ends."""
        self.contradictions = 0
        self.ignored: dict[str, int] = {}
        self._entries = entries
        self._final = tuple(segments)
        self._pools = {segment.address: segment.pool for segment in self._final}
        self._sizes = BlockSizes(settings)
        self._live: dict[int, tuple[int, int]] = {}  # address -> requested, block
        self._pending: dict[int, tuple[int, int]] = {}
        self._reserved = self._allocated = self._requested = self._pending_bytes = 0

    def baseline(self) -> Iterator[Record]:
        """Yield what was there before the first entry."""
        for (address, size), (stream, is_mapped) in sorted(self._first_segments().items()):
            yield from self._take_segment(address, size, stream, is_mapped)
        live, pending, stacks = self._first_blocks()
        if live or pending:
            yield self._stats(StatsCause.RESYNC)
        streams = {block.address: s.stream for s in self._final for block in s.blocks}
        # From the top: how large a block is depends on where the next one begins.
        for address in sorted(live | pending, reverse=True):
            if address in live:
                yield from self._alloc(
                    address, live[address], streams.get(address, 0), stacks.get(address, 0)
                )
            else:
                self._add_pending(address, pending[address])
        yield self._stats(StatsCause.BASELINE)

    def records(self, index: int) -> Iterator[Record]:
        """Yield what entry ``index`` says; entries have to come in order."""
        entry = self._entries[index]
        action = entry.action
        if action.startswith("segment_"):
            yield from self._segment(entry, index)
        elif action == "alloc":
            yield from self._alloc(entry.address, entry.size, entry.stream, entry.stack)
        elif action == "free_requested":
            yield from self._free(entry, index)
        elif action == "free_completed":
            if entry.address in self._pending:
                self._end_pending(entry.address)
                yield self._stats(StatsCause.RESYNC)
            elif entry.address in self._live:  # its free_requested is missing
                yield self._end_block(entry.address)
        elif action == "free":  # both in one, as some tools write it
            yield self._end_block(entry.address)
        elif action == "oom":
            yield Record(Kind.ALLOC_FAILED, 0, entry.size, entry.stream, entry.device_free)
        elif action not in ("snapshot", "annotate"):
            self.ignored[action] = self.ignored.get(action, 0) + 1

    def size_of(self, address: int) -> int:
        """Return the requested bytes of the block in use at ``address``, 0 without one."""
        return self._live.get(address, (0, 0))[0]

    # -- what one entry does ------------------------------------------------------------------

    def _segment(self, entry: Entry, index: int) -> Iterator[Record]:
        action = entry.action
        is_mapped = action in ("segment_map", "segment_unmap")
        if action in ("segment_alloc", "segment_map"):
            cause = StatsCause.MISS
            yield from self._take_segment(
                entry.address, entry.size, entry.stream, is_mapped, pool=entry.pool
            )
        elif action in ("segment_free", "segment_unmap"):
            cause = StatsCause.RELEASE
            self._reserved -= entry.size
            if not is_mapped:
                self._sizes.remove_segment(entry.address, entry.size)
            kind = Kind.SEGMENT_UNMAP if is_mapped else Kind.SEGMENT_FREE
            yield Record(kind, entry.address, entry.size)
        else:
            self.ignored[action] = self.ignored.get(action, 0) + 1
            return
        following = self._entries[index + 1 : index + 2]
        if not following or following[0].action != action:
            yield self._stats(cause)

    def _take_segment(
        self,
        address: int,
        size: int,
        stream: int,
        is_mapped: bool,
        *,
        pool: tuple[int, int] | None = None,
    ) -> Iterator[Record]:
        self._reserved += size
        flags = 0
        if not is_mapped:
            self._sizes.add_segment(address, size)
            flags = SegmentFlags.SMALL if size <= _SMALL_SEGMENT else SegmentFlags.LARGE
        kind = Kind.SEGMENT_MAP if is_mapped else Kind.SEGMENT_ALLOC
        yield Record(kind, address, size, stream, flags=flags)
        # Entries of torch before 2.14 do not tell it; a segment that is still there does.
        pool = pool or self._pools.get(address, (0, 0))
        if pool != (0, 0):
            yield Record(Kind.SEGMENT_POOL, address, *pool)

    def _alloc(self, address: int, requested: int, stream: int, stack: int) -> Iterator[Record]:
        if address in self._pending:
            self._end_pending(address)
        if address in self._live:
            self.contradictions += 1
            yield self._end_block(address)
        block = self._sizes.take(address, requested)
        self._live[address] = requested, block
        self._allocated += block
        self._requested += requested
        # The reader knows the rounding, not how blocks lie.
        is_told = block > _SMALL_REQUEST or block != rounded_to_512(requested)
        told = self._allocated if is_told else 0
        yield Record(Kind.ALLOC, address, requested, stream, told, site=stack)

    def _free(self, entry: Entry, index: int) -> Iterator[Record]:
        if entry.address not in self._live:
            self.contradictions += 1
            return
        following = self._entries[index + 1 : index + 2]
        if following and following[0][:2] == ("free_completed", entry.address):
            yield self._end_block(entry.address)
            return
        # Another stream is not done with it: the block stays active.
        requested, _ = self._live[entry.address]
        yield Record(Kind.RECORD_STREAM, entry.address)
        yield self._end_block(entry.address)
        self._add_pending(entry.address, requested)
        yield self._stats(StatsCause.RESYNC)

    def _add_pending(self, address: int, requested: int) -> None:
        block = self._sizes.take(address, requested)
        self._pending[address] = requested, block
        self._pending_bytes += block
        self._requested += requested

    def _end_block(self, address: int) -> Record:
        requested, block = self._live.pop(address, (0, 0))
        self._allocated -= block
        self._requested -= requested
        self._sizes.give_back(address)
        return Record(Kind.FREE, address)

    def _end_pending(self, address: int) -> None:
        requested, block = self._pending.pop(address)
        self._pending_bytes -= block
        self._requested -= requested
        self._sizes.give_back(address)

    def _stats(self, cause: StatsCause) -> Record:
        return Record(
            Kind.STATS,
            self._allocated,
            self._requested,
            self._allocated + self._pending_bytes,
            self._reserved,
            cause,
        )

    # -- what was there before ----------------------------------------------------------------

    def _first_segments(self) -> dict[tuple[int, int], tuple[int, bool]]:
        """Return (address, size) -> (stream, whether it is mapped) before the first entry."""
        whole = {(s.address, s.size): (s.stream, False) for s in self._final if not s.is_expandable}
        mapped = _Ranges()
        for segment in self._final:
            if segment.is_expandable:
                mapped.add(segment.address, segment.size, segment.stream)
        for entry in reversed(self._entries):
            place = entry.address, entry.size
            if entry.action == "segment_alloc":
                self.contradictions += whole.pop(place, None) is None
            elif entry.action == "segment_free":
                whole[place] = entry.stream, False
            elif entry.action == "segment_map":
                mapped.remove(*place)
            elif entry.action == "segment_unmap":
                mapped.add(*place, entry.stream)
        return whole | {place: (stream, True) for place, stream in mapped.ranges.items()}

    def _first_blocks(self) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
        """Return the blocks in use, and those that waited, before the first entry: their sizes.

        And the stacks of those whose stack is known.
        """
        stacks: dict[int, int] = {}
        live: dict[int, int] = {}
        pending: dict[int, int] = {}
        seen: set[int] = set()  # addresses of which the entries told since
        for entry in self._entries:
            if entry.action in ("free_requested", "free") and entry.address not in seen:
                live[entry.address] = entry.size
            elif entry.action == "free_completed" and entry.address not in seen:
                pending[entry.address] = entry.size
            if entry.action in ("alloc", "free_requested", "free_completed", "free"):
                seen.add(entry.address)
        for segment in self._final:
            for block in segment.blocks:
                if block.address not in seen and block.is_allocated:
                    live[block.address] = block.requested
                    stacks[block.address] = block.stack
                elif block.address not in seen and block.is_pending:
                    pending[block.address] = block.requested
        return live, pending, stacks


class _Ranges:
    """Mapped memory: (address, size) -> stream."""

    def __init__(self) -> None:
        self.ranges: dict[tuple[int, int], int] = {}

    def add(self, address: int, size: int, stream: int) -> None:
        """Take a range that is in no other."""
        self.ranges[address, size] = stream

    def remove(self, address: int, size: int) -> None:
        """Take out what lies in ``address`` to ``address + size``."""
        end = address + size
        for (at, length), stream in list(self.ranges.items()):
            if at < end and address < at + length:
                del self.ranges[at, length]
                if at < address:
                    self.ranges[at, address - at] = stream
                if end < at + length:
                    self.ranges[end, at + length - end] = stream
