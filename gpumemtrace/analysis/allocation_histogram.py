"""How large allocations are and how long they live, counted by category: one array for a device.

Bounded memory: of the blocks only those in use are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.analysis.categories import CATEGORY_NAMES, Categories, find_categories
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = [
    "LIFETIME_EDGES_NS",
    "SIZE_EDGES_BYTES",
    "AllocationHistogram",
    "find_allocation_histograms",
]

# Powers of two from 512 B, the allocator's smallest block, to 64 GiB.
SIZE_EDGES_BYTES: npt.NDArray[np.int64] = np.int64(1) << np.arange(9, 37, dtype=np.int64)
# Three a decade, from 1 us to 10,000 s.
LIFETIME_EDGES_NS: npt.NDArray[np.float64] = 10.0 ** (3 + np.arange(0, 31) / 3)

_Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class AllocationHistogram:
    """The allocations of one device.

    ``allocs`` and ``size_bytes`` (requested): int64 arrays (sizes, lifetimes, 8). Row i of sizes:
    up to ``SIZE_EDGES_BYTES[i]``, above the one before; the last row is for those above the last
    edge. Column i of lifetimes: below ``LIFETIME_EDGES_NS[i]``; the last but one for those beyond
    the last edge, the last for blocks in use at the end (or whose free was lost). The third axis is
    `CATEGORY_NAMES`. A lifetime is wall-clock time from alloc to free; a block from before the
    recording counts from where the trace first tells of it.
    """

    device: int
    allocs: npt.NDArray[np.int64]
    size_bytes: npt.NDArray[np.int64]

    @property
    def total_allocs(self) -> int:
        """How many allocations there were."""
        return int(self.allocs.sum())

    @property
    def total_bytes(self) -> int:
        """The bytes of all of them."""
        return int(self.size_bytes.sum())


def find_allocation_histograms(
    trace: TraceData, *, categories: Categories | None = None
) -> tuple[AllocationHistogram, ...]:
    """Count the allocations of every device, in one pass, and one more for `find_categories`.

    ``categories``: of this trace, where the caller has them already.
    """
    if categories is None:
        categories = find_categories(trace)
    finder = _Finder(categories)
    for batch in trace.chunks(lead_in=True):
        finder.feed(batch)
    return finder.finish()


class _Finder:
    """Pairs allocs with frees as batches go by."""

    def __init__(self, categories: Categories) -> None:
        self._categories = categories
        self._pairing = _core.Pairing()
        self._allocs_before = 0  # those before a slice, in the rows of the categories
        self._live = _rows_of(np.zeros(0, np.int64), 0, 0, 0, 0)
        self._sums: dict[int, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = {}

    def feed(self, batch: Batch) -> None:
        """Take the next batch."""
        raw = batch.raw
        is_alloc = raw["kind"] == Kind.ALLOC
        if batch.is_lead_in:
            self._allocs_before += int(np.count_nonzero(is_alloc))
            return
        first = self._pairing.allocs
        partner = self._pairing.feed(raw)
        number = np.arange(first, first + np.count_nonzero(is_alloc))
        born = _rows_of(
            number,
            raw["time_ns"][is_alloc],
            raw["size_bytes"][is_alloc],
            raw["device"][is_alloc],
            self._categories.category_id[self._allocs_before + number],
        )
        rows = {name: np.concatenate([self._live[name], born[name]]) for name in born}
        died = np.flatnonzero(batch.is_event & (partner >= 0))
        place = np.searchsorted(rows["number"], partner[died])
        # An alloc at an address that is still in use: the free before it was lost.
        is_freed = raw["kind"][died] == Kind.FREE
        lived = raw["time_ns"][died] - rows["time_ns"][place]
        column = np.searchsorted(LIFETIME_EDGES_NS, np.maximum(lived, 0), side="right")
        column[~is_freed] = len(LIFETIME_EDGES_NS) + 1
        self._count({name: values[place] for name, values in rows.items()}, column)
        is_live = np.ones(len(rows["number"]), np.bool_)
        is_live[place] = False
        self._live = {name: values[is_live] for name, values in rows.items()}

    def finish(self) -> tuple[AllocationHistogram, ...]:
        """Return what was counted."""
        count = len(self._live["number"])
        self._count(self._live, np.full(count, len(LIFETIME_EDGES_NS) + 1, np.intp))
        return tuple(
            AllocationHistogram(device, *sums) for device, sums in sorted(self._sums.items())
        )

    def _count(self, rows: _Columns, lifetime: npt.NDArray[np.intp]) -> None:
        size = np.searchsorted(SIZE_EDGES_BYTES, rows["size_bytes"])
        shape = (len(SIZE_EDGES_BYTES) + 1, len(LIFETIME_EDGES_NS) + 2, len(CATEGORY_NAMES))
        for device in np.unique(rows["device"]).tolist():
            if device not in self._sums:
                self._sums[device] = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
            mine = rows["device"] == device
            cell = size[mine], lifetime[mine], rows["category"][mine]
            allocs, size_bytes = self._sums[device]
            np.add.at(allocs, cell, 1)
            np.add.at(size_bytes, cell, rows["size_bytes"][mine])


def _rows_of(
    number: npt.NDArray[np.int64], time_ns: Any, size_bytes: Any, device: Any, category: Any
) -> _Columns:
    columns = {"time_ns": time_ns, "size_bytes": size_bytes, "device": device, "category": category}
    return {"number": number} | {
        name: np.broadcast_to(np.asarray(column, np.int64), number.shape)
        for name, column in columns.items()
    }
