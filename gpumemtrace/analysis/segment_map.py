"""A device's address space over time: how much of each stretch is in use, free or not reserved."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.segments import SegmentState, SegmentStream
from gpumemtrace.records import Batch
from gpumemtrace.trace_data import TraceData

__all__ = ["NOT_RESERVED", "SegmentMap", "SegmentMapFinder", "find_segment_maps"]

# In place of a share: nothing of the row is reserved.
NOT_RESERVED = -1


@dataclass(frozen=True)
class SegmentMap:
    """One device, at the end of each column: one of as many records as every other.

    ``time_ns``: int64 (columns), of the instants. What was ever reserved is put together without
    the holes between, and cut into rows of ``row_bytes`` (float): ``range_base`` uint64 and
    ``range_bytes`` int64 say which addresses they are. ``use_percent``: int16 (columns, rows), the
    part of the row's reserved bytes that is handed out or waits for another stream,
    `NOT_RESERVED` where none of it is reserved; ``idle_percent``: the part that ``empty_cache``
    would return. ``unknown_columns``: at whose end the segments were not known; they are left out.
    """

    device: int
    time_ns: npt.NDArray[np.int64]
    range_base: npt.NDArray[np.uint64]
    range_bytes: npt.NDArray[np.int64]
    row_bytes: float
    use_percent: npt.NDArray[np.int16]
    idle_percent: npt.NDArray[np.int16]
    unknown_columns: int


def find_segment_maps(
    trace: TraceData, *, columns: int = 240, rows: int = 192
) -> tuple[SegmentMap, ...]:
    """Return the map of every device that has records, in one pass over the trace."""
    finder = SegmentMapFinder(trace, columns=columns)
    stream = SegmentStream()
    for batch in trace.chunks(lead_in=True):
        if batch.is_lead_in:
            stream.feed(batch)
        else:
            finder.feed(stream, batch)
    return finder.finish(rows=rows)


@dataclass
class _Device:
    """Per instant: its time, and reserved, used and idle stretches as (first, end) addresses."""

    time_ns: list[int] = field(default_factory=list)
    reserved: list[npt.NDArray[np.uint64]] = field(default_factory=list)
    used: list[npt.NDArray[np.uint64]] = field(default_factory=list)
    idle: list[npt.NDArray[np.uint64]] = field(default_factory=list)
    unknown: int = 0


class SegmentMapFinder:
    """Looks at the segments at the end of each column; see `find_segment_maps`."""

    def __init__(self, trace: TraceData, *, columns: int) -> None:
        """Divide the records of ``trace`` into ``columns``."""
        if columns < 1:
            raise ValueError(f"columns must be at least 1, not {columns}")
        # As many records each: where much happens, columns are narrow.
        self._cuts = np.unique(np.linspace(0, trace.record_count, columns + 1).astype(np.int64))[1:]
        self._records = 0
        self._devices: dict[int, _Device] = {}

    def cuts(self, batch: Batch) -> list[int]:
        """Return after how many records of the next batch columns end."""
        places = np.searchsorted(self._cuts, [self._records + 1, self._records + len(batch) + 1])
        ends: list[int] = (self._cuts[slice(*places.tolist())] - self._records).tolist()
        self._records += len(batch)
        return ends

    def feed(self, stream: SegmentStream, batch: Batch) -> None:
        """Give ``stream`` the next batch, and look at it where a column ends."""
        begin = 0
        for cut in self.cuts(batch):
            stream.feed(batch, first=begin, end=cut)
            self.look(stream, int(batch.raw["time_ns"][cut - 1]))
            begin = cut
        if begin < len(batch):
            stream.feed(batch, first=begin, end=len(batch))

    def look(self, stream: SegmentStream, time_ns: int) -> None:
        """Take the segments as they are at the end of a column."""
        for number in stream.devices:
            device = self._devices.setdefault(number, _Device())
            state = stream.state(number)
            if not state.known:
                device.unknown += 1
                continue
            device.time_ns.append(time_ns)
            device.reserved.append(_stretches(state.segments.base, state.segments.size_bytes))
            device.used.append(_used(state))
            device.idle.append(_idle(state))

    def finish(self, *, rows: int) -> tuple[SegmentMap, ...]:
        """Return the maps, each in ``rows`` rows."""
        if rows < 1:
            raise ValueError(f"rows must be at least 1, not {rows}")
        return tuple(
            _as_map(number, device, rows) for number, device in sorted(self._devices.items())
        )


def _used(state: SegmentState) -> npt.NDArray[np.uint64]:
    in_use = ~state.blocks.is_free
    return _stretches(state.blocks.address[in_use], state.blocks.size_bytes[in_use])


def _idle(state: SegmentState) -> npt.NDArray[np.uint64]:
    blocks = state.blocks
    mine = np.flatnonzero(blocks.idle_bytes)
    segment, size = blocks.segment[mine], blocks.idle_bytes[mine]
    # Of a block in an expandable segment, the whole pages; else it is all of its segment.
    page = np.maximum(state.segments.page_bytes[segment], 1)
    base = state.segments.base[segment]
    begin = (blocks.address[mine] - base).astype(np.int64)
    first = np.minimum(-(-begin // page) * page, begin + blocks.size_bytes[mine] - size)
    return _stretches(base + first.astype(np.uint64), size)


def _stretches(
    base: npt.NDArray[np.uint64], size_bytes: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Return (first, end) addresses in order, those that touch as one; shape (n, 2)."""
    order = np.argsort(base)
    first, end = base[order], base[order] + size_bytes[order].astype(np.uint64)
    if not len(first):
        return np.zeros((0, 2), np.uint64)
    reach = np.maximum.accumulate(end)
    begins = np.concatenate([[True], first[1:] > reach[:-1]])
    ends = np.append(np.flatnonzero(begins)[1:] - 1, len(first) - 1)
    return np.stack([first[begins], reach[ends]], axis=1)


def _as_map(number: int, device: _Device, rows: int) -> SegmentMap:
    every = np.concatenate([np.zeros((0, 2), np.uint64), *device.reserved])
    ranges = _stretches(every[:, 0], (every[:, 1] - every[:, 0]).astype(np.int64))
    size = (ranges[:, 1] - ranges[:, 0]).astype(np.int64)
    offset = np.concatenate([[0], np.cumsum(size)])
    edges = np.linspace(0, max(int(offset[-1]), 1), rows + 1)
    percent = np.full((2, len(device.time_ns), rows), NOT_RESERVED, np.int16)
    for column, reserved in enumerate(device.reserved):
        held = _bytes_per_row(reserved, ranges, offset, edges)
        has_any = held > 0.5
        for i, part in enumerate((device.used[column], device.idle[column])):
            of_rows = _bytes_per_row(part, ranges, offset, edges)
            percent[i, column, has_any] = np.rint(100 * of_rows[has_any] / held[has_any])
    return SegmentMap(
        device=number,
        time_ns=np.array(device.time_ns, np.int64),
        range_base=ranges[:, 0],
        range_bytes=size,
        row_bytes=float(edges[1]) if len(size) else 0.0,
        use_percent=percent[0].clip(NOT_RESERVED, 100),
        idle_percent=percent[1].clip(NOT_RESERVED, 100),
        unknown_columns=device.unknown,
    )


def _bytes_per_row(
    stretches: npt.NDArray[np.uint64],
    ranges: npt.NDArray[np.uint64],
    offset: npt.NDArray[np.int64],
    edges: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Return how many bytes of each row lie in ``stretches``, each of which lies in one range."""
    if not len(stretches):
        return np.zeros(len(edges) - 1)
    within = np.searchsorted(ranges[:, 0], stretches[:, 0], side="right") - 1
    first = offset[within] + (stretches[:, 0] - ranges[within, 0]).astype(np.int64)
    length = (stretches[:, 1] - stretches[:, 0]).astype(np.int64)
    corners = np.stack([first, first + length], axis=1).ravel()
    filled = np.cumsum(length)
    before = np.stack([filled - length, filled], axis=1).ravel()
    return np.diff(np.interp(edges, corners, before))
