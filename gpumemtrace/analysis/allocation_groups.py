"""What a run allocates, by size and phase: how many times, and in how many steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.lines import Lines
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["AllocationGroup", "AllocationGroupFinder", "GroupUse"]

# Groups are kept in one table until it has so many rows; then it is added up.
_MOST_ROWS = 1 << 20


@dataclass(frozen=True, order=True)
class AllocationGroup:
    """Allocations of one requested size in one phase (None: outside of any) on one device."""

    device: int
    phase: str | None
    size_bytes: int


@dataclass(frozen=True)
class GroupUse:
    """How many allocations a group has, and in how many steps there is one of them."""

    count: int
    steps: int


class AllocationGroupFinder:
    """Counts the allocations of each group, and the steps that have one, in the shared pass."""

    def __init__(self, trace: TraceData) -> None:
        """Prepare for one pass over ``trace``."""
        self._phase_names = trace.phase_names
        # Device, phase, size; count, steps.
        self._tables: list[npt.NDArray[np.int64]] = []
        self._rows = 0
        # The step in which the last batch ended, and its groups so far.
        self._step = -1
        self._in_step: set[tuple[int, int, int]] = set()

    def begin(self, initial: Mapping[int, Mapping[str, int]]) -> None:
        """Take the lines as they are before the first record: they don't matter here."""

    def feed(self, batch: Batch, lines: Lines) -> None:
        """Take the next batch."""
        rows = np.flatnonzero(batch.raw["kind"] == Kind.ALLOC)
        if not len(rows):
            return
        columns = [batch.raw["device"], batch.phase, batch.raw["size_bytes"], batch.step]
        ones = np.ones(len(rows), np.int64)
        table = np.column_stack([*(column[rows].astype(np.int64) for column in columns), ones])
        last = int(table[-1, 3])
        in_steps = _summed(table, keys=4)
        steps = np.ones(len(in_steps), np.int64)
        # A step that began in an earlier batch has some of its groups already.
        for row in np.flatnonzero(in_steps[:, 3] == self._step).tolist():
            steps[row] = tuple(in_steps[row, :3].tolist()) not in self._in_step
        if last != self._step:
            self._step, self._in_step = last, set()
        self._in_step |= {tuple(key) for key in in_steps[in_steps[:, 3] == last, :3].tolist()}
        self._add(np.column_stack([in_steps[:, :3], in_steps[:, 4], steps]))

    def finish(self) -> dict[AllocationGroup, GroupUse]:
        """Return how each group is used."""
        self._sum_up()
        return {
            AllocationGroup(
                device, self._phase_names[phase] if phase >= 0 else None, size
            ): GroupUse(count, steps)
            for table in self._tables
            for device, phase, size, count, steps in table.tolist()
        }

    def _add(self, table: npt.NDArray[np.int64]) -> None:
        table = _summed(table, keys=3)
        self._tables.append(table)
        self._rows += len(table)
        if self._rows > _MOST_ROWS and len(self._tables) > 1:
            self._sum_up()

    def _sum_up(self) -> None:
        tables, self._tables, self._rows = self._tables, [], 0
        if tables:
            self._add(np.vstack(tables))


def _summed(table: npt.NDArray[np.int64], *, keys: int) -> npt.NDArray[np.int64]:
    """Return a row for each different beginning of ``keys`` columns, the other columns summed."""
    table = table[np.lexsort(table[:, :keys].T)]
    is_first = np.ones(len(table), np.bool_)
    is_first[1:] = (table[1:, :keys] != table[:-1, :keys]).any(axis=1)
    starts = np.flatnonzero(is_first)
    return np.hstack([table[starts, :keys], np.add.reduceat(table[:, keys:], starts, axis=0)])
