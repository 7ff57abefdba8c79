"""What a run allocates, by size, phase and owner: how many times, and in how many steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.lines import Lines
from gpumemtrace.analysis.owners import keys_of_sites
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["AllocationGroup", "AllocationGroupFinder", "GroupUse"]

# Groups are kept in one table until it has so many rows; then it is added up.
_MOST_ROWS = 1 << 20
_KEYS = 4


@dataclass(frozen=True, order=True)
class AllocationGroup:
    """Allocations of one requested size in one phase (None: outside of any) on one device.

    ``owner``: the module or line that made them; None where it was not asked for.
    """

    device: int
    phase: str | None
    size_bytes: int
    owner: str | None = None


@dataclass(frozen=True)
class GroupUse:
    """How many allocations a group has, and in how many steps there is one of them.

    Steps that were summarised to keep the file small don't count: most of theirs are left out.
    """

    count: int
    steps: int


class AllocationGroupFinder:
    """Counts the allocations of each group, and the steps that have one, in the shared pass."""

    def __init__(self, trace: TraceData, *, by: str | None = None) -> None:
        """Prepare for one pass over ``trace``; ``by``: one of `OWNERS` tells owners apart too."""
        self._phase_names = trace.phase_names
        self._sites = trace.sites
        # Of each site number the place of its owner among the names.
        self._owner_of: npt.NDArray[np.int64] | None = None
        self._owner_names: tuple[str, ...] = ()
        if by is not None:
            self._owner_of, self._owner_names = keys_of_sites(trace.sites, by)
        # Device, phase, owner (-1 where it is not asked for), size; count, steps.
        self._tables: list[npt.NDArray[np.int64]] = []
        self._rows = 0
        # Of the step in which the last batch ended: its groups so far, and whether it has aged.
        self._open = np.zeros((0, _KEYS + 2), np.int64)
        self._aged: set[int] = set()

    def begin(self, initial: Mapping[int, Mapping[str, int]]) -> None:
        """Take the lines as they are before the first record: they don't matter here."""

    def feed(self, batch: Batch, lines: Lines) -> None:
        """Take the next batch."""
        if not len(batch):
            return
        rows = np.flatnonzero(batch.raw["kind"] == Kind.ALLOC)
        columns = [batch.raw["device"], batch.phase, batch.raw["size_bytes"], batch.step]
        device, phase, size, step = (column[rows].astype(np.int64) for column in columns)
        ones = np.ones(len(rows), np.int64)
        owner = -ones
        if self._owner_of is not None:
            owner = self._owner_of[self._sites.clipped(batch.raw["site"][rows])]
        table = np.column_stack([device, phase, owner, size, step, ones])
        self._aged |= set(batch.step[batch.rows_of(Kind.AGED)].tolist())
        self._close_steps(np.vstack([self._open, table]), open_step=int(batch.step[-1]))

    def finish(self) -> dict[AllocationGroup, GroupUse]:
        """Return how each group is used."""
        self._close_steps(self._open, open_step=None)
        self._sum_up()
        return {
            AllocationGroup(
                device,
                self._phase_names[phase] if phase >= 0 else None,
                size,
                self._owner_names[owner] if owner >= 0 else None,
            ): GroupUse(count, steps)
            for table in self._tables
            for device, phase, owner, size, count, steps in table.tolist()
        }

    def _close_steps(self, table: npt.NDArray[np.int64], *, open_step: int | None) -> None:
        """Add what the steps of ``table`` have, but for the open one, which may go on."""
        in_steps = _summed(table, keys=_KEYS + 1)
        is_open = in_steps[:, _KEYS] == open_step
        self._open = in_steps[is_open]
        closed = in_steps[~is_open & ~np.isin(in_steps[:, _KEYS], list(self._aged))]
        self._aged &= {open_step}
        ones = np.ones(len(closed), np.int64)
        self._add(np.column_stack([closed[:, :_KEYS], closed[:, _KEYS + 1], ones]))

    def _add(self, table: npt.NDArray[np.int64]) -> None:
        table = _summed(table, keys=_KEYS)
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
    if not len(table):
        return table
    table = table[np.lexsort(table[:, :keys].T)]
    is_first = np.ones(len(table), np.bool_)
    is_first[1:] = (table[1:, :keys] != table[:-1, :keys]).any(axis=1)
    starts = np.flatnonzero(is_first)
    return np.hstack([table[starts, :keys], np.add.reduceat(table[:, keys:], starts, axis=0)])
