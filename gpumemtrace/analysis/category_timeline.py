"""What memory was for over time: each device's allocated line by category, at picture width."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.analysis.aged import find_aged
from gpumemtrace.analysis.categories import CATEGORY_NAMES, Categories, find_categories
from gpumemtrace.analysis.lines import Lines, feed_lines
from gpumemtrace.analysis.rest import split_rest
from gpumemtrace.records import Batch
from gpumemtrace.trace_data import TraceData

__all__ = [
    "CategoryReader",
    "CategoryTimeline",
    "PlaceSampler",
    "find_category_timeline",
    "read_categories",
]

_NONE = np.zeros(0, np.int64)
_BEFORE = -1  # the position of what a slice begins with, before its first record


@dataclass(frozen=True)
class CategoryTimeline:
    """One device, at the highest and the last record of each column of the picture.

    A slice begins with what the records before it left in use, at its first instant.
    ``time_ns`` int64 (n); ``allocated_bytes`` int64 (n); ``category_bytes`` int64 (n, 8), columns
    `CATEGORY_NAMES`; ``summarised_bytes`` int64 (n): of blocks that came and went within a step
    that was summarised to keep the file small; ``rest_bytes`` int64 (n): what the line says beyond
    the blocks that the trace has seen (some came before it, or were lost). Each row with these two
    adds up to the line.
    """

    device: int
    time_ns: npt.NDArray[np.int64]
    allocated_bytes: npt.NDArray[np.int64]
    category_bytes: npt.NDArray[np.int64]
    summarised_bytes: npt.NDArray[np.int64]
    rest_bytes: npt.NDArray[np.int64]

    def envelope(
        self, start_ns: int, end_ns: int, *, columns: int
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return what to draw as steps: from which time on (float64), which row (int64).

        Each of ``columns`` of time, as they were found, shows its highest row over all its width,
        so that no peak is too thin to be seen; one without records shows how the one before ended.
        """
        column = ((self.time_ns - start_ns) * (columns / max(end_ns - start_ns, 1))).astype(
            np.int64
        )
        column = np.maximum.accumulate(np.clip(column, 0, columns - 1))
        highest, last = _highest_and_last(column, self.allocated_bytes)
        found = column[last]
        is_followed = np.append(found[1:] == found[:-1] + 1, False)
        at = np.concatenate([found, found[~is_followed] + 1])
        rows = np.concatenate([highest, last[~is_followed]]).astype(np.int64)
        order = np.argsort(at, kind="stable")
        return start_ns + at[order] * (max(end_ns - start_ns, 1) / columns), rows[order]


def find_category_timeline(
    trace: TraceData, *, columns: int = 2000
) -> tuple[CategoryTimeline, ...]:
    """Return the categories over time of every device, in three passes over the trace."""
    sampler = PlaceSampler(trace, columns=columns)
    feed_lines(trace, sampler)
    return read_categories(trace, sampler, find_categories(trace))


class PlaceSampler:
    """Finds, per device and column of time, its highest and its last record (a `LineConsumer`)."""

    def __init__(self, trace: TraceData, *, columns: int) -> None:
        """Prepare for one pass over ``trace``."""
        if columns < 1:
            raise ValueError(f"columns must be at least 1, not {columns}")
        self._start_ns, end_ns = trace.time_span_ns
        self._columns = columns
        self._columns_per_ns = columns / max(end_ns - self._start_ns, 1)
        self._records = 0
        # Device -> pieces of (column, position, time, allocated), in order.
        self._highest: dict[int, list[npt.NDArray[np.int64]]] = {}
        self._last: dict[int, list[npt.NDArray[np.int64]]] = {}

    def begin(self, initial: dict[int, dict[str, int]]) -> None:
        """Take the lines as they are before the first record."""
        for device, lines in initial.items():
            place = np.array([[0], [_BEFORE], [self._start_ns], [lines["allocated"]]], np.int64)
            self._highest[device], self._last[device] = [place], [place]

    def feed(self, batch: Batch, lines: Lines) -> None:
        """Take the next batch."""
        for device in set(lines.devices) - {-1}:
            points = lines.points(device)
            if not len(points.rows):
                continue
            time_ns = batch.raw["time_ns"][points.rows]
            column = ((time_ns - self._start_ns) * self._columns_per_ns).astype(np.int64)
            # Clocks of several threads may step back a little.
            column = np.maximum.accumulate(np.clip(column, 0, self._columns - 1))
            allocated = points.values["allocated"]
            for chosen, pieces in zip(
                _highest_and_last(column, allocated), (self._highest, self._last), strict=True
            ):
                position = self._records + points.rows[chosen]
                piece = np.stack([column[chosen], position, time_ns[chosen], allocated[chosen]])
                pieces.setdefault(device, []).append(piece)
        self._records += len(batch)

    def places(self) -> dict[int, npt.NDArray[np.int64]]:
        """Return device -> rows of position, time and allocated bytes, in order of position."""
        result = {}
        for device, pieces in sorted(self._highest.items()):
            highest, last = np.hstack(pieces), np.hstack(self._last[device])
            # A column may lie in several batches.
            of_columns = highest[1:, _highest_and_last(highest[0], highest[-1])[0]]
            ends = last[1:, _highest_and_last(last[0], last[-1])[1]]
            both = np.hstack([of_columns, ends])
            result[device] = both[:, np.unique(both[0], return_index=True)[1]]
        return result


class CategoryReader:
    """Reads the categories at places of the same trace, in a pass after that of `PlaceSampler`."""

    def __init__(self, trace: TraceData, sampler: PlaceSampler, categories: Categories) -> None:
        """Prepare for one pass over ``trace``."""
        self._places = sampler.places()
        number = [np.full(rows.shape[1], device) for device, rows in self._places.items()]
        position = np.concatenate([_NONE, *(rows[0] for rows in self._places.values())])
        self._order = np.argsort(position, kind="stable")
        self._position = position[self._order]
        self._device = np.concatenate([_NONE, *number])[self._order].astype(np.int16)
        # What a slice begins with is read at the end of each batch before it: the last one counts.
        self._before = self._device[self._position == _BEFORE]
        self._at_begin = np.zeros((len(self._before), len(CATEGORY_NAMES)), np.int64)
        self._groups = _core.LiveGroups(categories.category_id, len(trace.phase_names))
        self._aged = find_aged(trace)
        self._sums: list[npt.NDArray[np.int64]] = []
        self._is_aged = [np.zeros(len(self._before), np.bool_)]
        self._done = 0

    def feed(self, batch: Batch) -> None:
        """Take the next batch, also of the lead-in."""
        if batch.is_lead_in:
            rows = np.full(len(self._before), len(batch) - 1, np.int64)
            sums = self._groups.feed(batch.raw, batch.step, batch.phase, rows, self._before)
            self._at_begin = sums[0]
            return
        end = self._done + len(batch)
        mine = slice(*np.searchsorted(self._position, [self._done, end]).tolist())
        rows = self._position[mine] - self._done
        sums = self._groups.feed(batch.raw, batch.step, batch.phase, rows, self._device[mine])
        self._sums.append(sums[0])
        self._is_aged.append(self._aged.covers(batch.step[rows]))
        self._done = end

    def finish(self) -> tuple[CategoryTimeline, ...]:
        """Return what was found."""
        by_category = np.empty((len(self._position), len(CATEGORY_NAMES)), np.int64)
        by_category[self._order] = np.vstack([self._at_begin, *self._sums])
        is_aged = np.empty(len(self._position), np.bool_)
        is_aged[self._order] = np.concatenate(self._is_aged)
        result, first = [], 0
        for one, (_, time_ns, allocated) in self._places.items():
            mine = slice(first, first + len(time_ns))
            rest = allocated - by_category[mine].sum(axis=1)
            summarised, rest = split_rest(rest, is_aged[mine])
            result.append(
                CategoryTimeline(one, time_ns, allocated, by_category[mine], summarised, rest)
            )
            first += len(time_ns)
        return tuple(result)


def read_categories(
    trace: TraceData, sampler: PlaceSampler, categories: Categories
) -> tuple[CategoryTimeline, ...]:
    """Return the categories at the places of ``sampler``, in one pass over the same trace."""
    reader = CategoryReader(trace, sampler, categories)
    for batch in trace.chunks(lead_in=True):
        reader.feed(batch)
    return reader.finish()


def _highest_and_last(
    column: npt.NDArray[np.int64], allocated: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return where each run of equal columns is highest (first of several), and where it ends."""
    starts = np.concatenate([[0], np.flatnonzero(column[1:] != column[:-1]) + 1])
    ends = np.append(starts[1:], len(column))
    highest = np.maximum.reduceat(allocated, starts)
    hits = np.flatnonzero(allocated == np.repeat(highest, ends - starts))
    return hits[np.searchsorted(hits, starts)], ends - 1
