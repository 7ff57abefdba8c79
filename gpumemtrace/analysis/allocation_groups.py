"""What a run allocates, by size and phase: how many times, counted as batches go by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.lines import Lines
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["AllocationGroup", "AllocationGroupFinder"]

# Groups are kept in one table until it has so many rows; then it is added up.
_MOST_ROWS = 1 << 20


@dataclass(frozen=True, order=True)
class AllocationGroup:
    """Allocations of one requested size in one phase (None: outside of any) on one device."""

    device: int
    phase: str | None
    size_bytes: int


class AllocationGroupFinder:
    """Counts the allocations of each group in the shared pass."""

    def __init__(self, trace: TraceData) -> None:
        """Prepare for one pass over ``trace``."""
        self._phase_names = trace.phase_names
        self._tables: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        self._rows = 0

    def begin(self, initial: Mapping[int, Mapping[str, int]]) -> None:
        """Take the lines as they are before the first record: they don't matter here."""

    def feed(self, batch: Batch, lines: Lines) -> None:
        """Take the next batch."""
        rows = np.flatnonzero(batch.raw["kind"] == Kind.ALLOC)
        keys = np.column_stack(
            [batch.raw["device"][rows], batch.phase[rows], batch.raw["size_bytes"][rows]]
        ).astype(np.int64)
        self._add(keys, np.ones(len(rows), np.int64))

    def finish(self) -> dict[AllocationGroup, int]:
        """Return group -> number of allocations."""
        self._sum_up()
        return {
            AllocationGroup(device, self._phase_names[phase] if phase >= 0 else None, size): count
            for keys, counts in self._tables
            for (device, phase, size), count in zip(keys.tolist(), counts.tolist(), strict=True)
        }

    def _add(self, keys: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> None:
        order = np.lexsort(keys.T)
        keys, counts = keys[order], counts[order]
        is_first = np.ones(len(keys), np.bool_)
        is_first[1:] = (keys[1:] != keys[:-1]).any(axis=1)
        starts = np.flatnonzero(is_first)
        if len(starts):
            self._tables.append((keys[starts], np.add.reduceat(counts, starts)))
            self._rows += len(starts)
        if self._rows > _MOST_ROWS and len(self._tables) > 1:
            self._sum_up()

    def _sum_up(self) -> None:
        tables, self._tables, self._rows = self._tables, [], 0
        if tables:
            keys, counts = (np.concatenate(part) for part in zip(*tables, strict=True))
            self._add(keys, counts)
