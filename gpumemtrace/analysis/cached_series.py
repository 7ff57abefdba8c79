"""Cached memory over time, by cause: exact states at chosen instants, and the worst of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.segments import FREE_CAUSES, FreeLines, SegmentStream
from gpumemtrace.records import Batch
from gpumemtrace.trace_data import TraceData

__all__ = ["CachedFinder", "CachedSeries", "find_cached"]


@dataclass(frozen=True)
class CachedSeries:
    """States of one device, each that of one record: of every column of time the one with the most
    cached bytes, the one with the most that is not idle, and the last one.

    All arrays have one length: ``time_ns``, ``record`` (numbers over all records), ``step``;
    ``reserved``, ``active`` and ``free`` (cause -> array): int64 bytes. In every row the causes and
    the active bytes add up to the reserved ones. Records at which the device's segments were not
    known are left out.
    """

    device: int
    time_ns: npt.NDArray[np.int64]
    record: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]
    reserved: npt.NDArray[np.int64]
    active: npt.NDArray[np.int64]
    free: dict[str, npt.NDArray[np.int64]]

    def __len__(self) -> int:
        return len(self.record)

    @property
    def cached(self) -> npt.NDArray[np.int64]:
        """All free bytes: reserved less active."""
        return self.reserved - self.active

    @property
    def worst(self) -> int | None:
        """The row with the most cached bytes that are not idle, of the whole run the first; with
        the most cached bytes where they always are. None without rows."""
        if not len(self):
            return None
        stuck = self.cached - self.free["idle"]
        return int(np.argmax(stuck if stuck.any() else self.cached))


def find_cached(trace: TraceData, *, device: int, columns: int = 1000) -> CachedSeries:
    """Return the cached memory of a device over the trace, in ``columns`` columns of time."""
    finder = CachedFinder(device, trace.time_span_ns, columns)
    stream = SegmentStream()
    for batch in trace.chunks(lead_in=True):
        if batch.is_lead_in:
            stream.feed(batch)
        else:
            finder.feed(batch, stream.feed_lines(batch))
    return finder.finish()


class CachedFinder:
    """Chooses the instants as batches go by; see `find_cached`."""

    def __init__(self, device: int, span_ns: tuple[int, int], columns: int = 1000) -> None:
        """Divide ``span_ns`` into ``columns``."""
        if columns < 1:
            raise ValueError(f"columns must be at least 1, not {columns}")
        self._device = device
        self._start_ns = span_ns[0]
        self._width_ns = max((span_ns[1] - span_ns[0]) // columns + 1, 1)
        self._rows: list[dict[str, npt.NDArray[Any]]] = []

    def feed(self, batch: Batch, lines: FreeLines) -> None:
        """Take the next batch."""
        rows = np.flatnonzero((lines.device == self._device) & lines.known)
        if not len(rows):
            return
        column = (batch.raw["time_ns"][rows] - self._start_ns) // self._width_ns
        starts = np.concatenate([[0], np.flatnonzero(np.diff(column)) + 1])
        cached = lines.reserved[rows] - lines.active[rows]
        ends = np.concatenate([starts[1:], [len(rows)]])
        chosen = [ends - 1]
        for line in (cached, cached - lines.free["idle"][rows]):
            # The first record of each column that reaches the maximum in it.
            highest = np.repeat(np.maximum.reduceat(line, starts), ends - starts)
            places = np.flatnonzero(line == highest)
            chosen.append(places[np.searchsorted(places, starts)])
        chosen_rows = rows[np.unique(np.concatenate(chosen))]
        self._rows.append(
            {
                "time_ns": batch.raw["time_ns"][chosen_rows],
                "record": batch.first_record + chosen_rows,
                "step": batch.step[chosen_rows],
                "reserved": lines.reserved[chosen_rows],
                "active": lines.active[chosen_rows],
            }
            | {cause: lines.free[cause][chosen_rows] for cause in FREE_CAUSES}
        )

    def finish(self) -> CachedSeries:
        """Return what was chosen."""
        names = ("time_ns", "record", "step", "reserved", "active", *FREE_CAUSES)
        columns: dict[str, npt.NDArray[np.int64]] = {
            name: np.concatenate(
                [np.zeros(0, np.int64), *(rows[name] for rows in self._rows)]
            ).astype(np.int64)
            for name in names
        }
        return CachedSeries(
            device=self._device,
            **{name: columns[name] for name in names[:5]},
            free={cause: columns[cause] for cause in FREE_CAUSES},
        )
