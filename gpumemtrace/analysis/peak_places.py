"""Where each step has its peak: the first record at which a line is as high as it gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.lines import ALLOCATOR_LINES, Lines
from gpumemtrace.marks import begins_at_step
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind

__all__ = ["PeakPlaceFinder", "PeakPlaces"]

_COLUMNS = ("position", "time_ns", "event", "phase", *ALLOCATOR_LINES)


@dataclass(frozen=True)
class PeakPlaces:
    """One row per step, in order of time, the unfinished last one too; int64 arrays.

    ``number``: of the step. ``position``: records of the trace or slice before the one that reached
    the peak, -1 where the device had no record yet; a step that is highest when it begins has its
    peak at the mark that begins it. ``time_ns``, ``event`` (events before it), ``phase`` (index,
    -1 = none) of that record; ``lines``: line name -> bytes after it.
    """

    device: int
    number: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]
    time_ns: npt.NDArray[np.int64]
    event: npt.NDArray[np.int64]
    phase: npt.NDArray[np.int64]
    lines: dict[str, npt.NDArray[np.int64]]


@dataclass
class _Device:
    """``last``: the lines as of now; ``best``: a row of `_COLUMNS` for the step that is open."""

    last: npt.NDArray[np.int64]
    best: npt.NDArray[np.int64]
    closed: list[npt.NDArray[np.int64]] = field(default_factory=list)


class PeakPlaceFinder:
    """Finds `PeakPlaces` of a line as batches go by (a `LineConsumer`)."""

    def __init__(self, line: str) -> None:
        """Look for the peaks of ``line``, one of `ALLOCATOR_LINES`."""
        self._line = ALLOCATOR_LINES.index(line)
        self._devices: dict[int, _Device] = {}
        self._initial: dict[int, dict[str, int]] = {}
        self._numbers: list[int] = []
        self._step = 0
        self._records = 0

    def begin(self, initial: dict[int, dict[str, int]]) -> None:
        """Take the lines as they are before the first record."""
        self._initial = initial

    def feed(self, batch: Batch, lines: Lines) -> None:
        """Take the next batch."""
        cuts = batch.rows_of(Kind.STEP)
        if self._records == 0:
            self._step = int(batch.step[0])
            if begins_at_step(batch):
                cuts = cuts[1:]
        for number in {*lines.devices, *self._initial, *self._devices} - {-1}:
            if number not in self._devices:
                initial = self._initial.get(number, {})
                last = np.array([initial.get(name, 0) for name in ALLOCATOR_LINES], np.int64)
                start = self._places(batch, np.zeros(1, np.intp))[0]
                if number not in self._initial:
                    start[0] = -1
                self._devices[number] = _Device(last, np.concatenate([start, last]))
            self._feed_device(self._devices[number], batch, lines, number, cuts)
        begun: list[int] = batch.step[cuts].tolist()
        self._numbers += [self._step, *begun][: len(begun)]
        self._step = begun[-1] if begun else self._step
        self._records += len(batch)

    def finish(self) -> tuple[PeakPlaces, ...]:
        """Return the places on every device."""
        number = np.array([*self._numbers, self._step], np.int64)
        result = []
        for device, state in sorted(self._devices.items()):
            rows = np.vstack([*state.closed, state.best])
            # Steps that were over before the device had its first record.
            missing = np.zeros((len(number) - len(rows), len(_COLUMNS)), np.int64)
            missing[:, 0] = missing[:, 3] = -1
            columns = dict(zip(_COLUMNS, np.vstack([missing, rows]).T, strict=True))
            lines = {name: columns.pop(name) for name in ALLOCATOR_LINES}
            result.append(PeakPlaces(device, number, lines=lines, **columns))
        return tuple(result)

    def _feed_device(
        self, state: _Device, batch: Batch, lines: Lines, number: int, cuts: npt.NDArray[np.intp]
    ) -> None:
        points = lines.points(number)
        line = points.values[ALLOCATOR_LINES[self._line]]
        edges = [0, *np.searchsorted(points.rows, cuts).tolist(), len(points.rows)]
        # Per stretch the record of its peak, and the point with the lines there; -1: as they were
        # before this batch, at the peak of the open step or at the end.
        rows = np.full(len(edges) - 1, -1, np.intp)
        rows[1:] = cuts
        point = np.array(edges[:-1], np.intp) - 1
        for i, (first, end) in enumerate(pairwise(edges)):
            if end > first:
                highest = first + int(np.argmax(line[first:end]))
                before = line[point[i]] if point[i] >= 0 else self._before(state, i)
                if line[highest] > before:
                    rows[i], point[i] = points.rows[highest], highest
        at = np.where(rows[:, None] < 0, state.best[-len(ALLOCATOR_LINES) :], state.last)
        is_known = point >= 0
        for i, name in enumerate(ALLOCATOR_LINES):
            at[is_known, i] = points.values[name][point[is_known]]
        found = np.hstack([self._places(batch, np.maximum(rows, 0)), at])
        if rows[0] < 0:
            found[0] = state.best
        state.closed.append(found[:-1])
        state.best = found[-1]
        if len(line):
            state.last = np.array([points.values[name][-1] for name in ALLOCATOR_LINES])

    def _before(self, state: _Device, stretch: int) -> int:
        """Return the line's value to beat in a stretch that no point of this batch precedes."""
        known = state.best[-len(ALLOCATOR_LINES) :] if stretch == 0 else state.last
        return int(known[self._line])

    def _places(self, batch: Batch, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        return np.stack(
            [
                self._records + rows,
                batch.raw["time_ns"][rows],
                batch.events_before(rows),
                batch.phase[rows],
            ],
            axis=1,
        ).astype(np.int64)
