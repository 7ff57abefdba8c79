"""Blocks in use with what was noted at their birth, as a trace goes by; memory of the live set."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind

__all__ = ["LiveRows"]

_Arrays = dict[str, npt.NDArray[Any]]


class LiveRows:
    """Pairs each end of a block with its birth; feed batches in order.

    ``live``: the columns noted of the blocks in use, and ``allocation``, their numbers, ascending.
    """

    def __init__(self) -> None:
        self._pairing = _core.Pairing()
        self.live: _Arrays = {}

    def feed(
        self, batch: Batch, noted: _Arrays, *, until_ns: int | None = None
    ) -> tuple[npt.NDArray[np.intp], _Arrays]:
        """Take a batch, and of ``noted`` (columns of its length) the rows of its allocs.

        Returns the rows at which blocks end (a free, or an alloc that got the address of a block
        whose free is missing) and the columns of those blocks. What ends after ``until_ns`` stays.
        """
        first = self._pairing.allocs
        partner = self._pairing.feed(batch.raw)
        is_alloc = batch.raw["kind"] == Kind.ALLOC
        born: _Arrays = {"allocation": first + np.arange(np.count_nonzero(is_alloc))}
        born |= {name: column[is_alloc] for name, column in noted.items()}
        if self.live:
            born = {n: np.concatenate([old, born[n]]) for n, old in self.live.items()}
        ending = np.flatnonzero(batch.is_event & (partner >= 0))
        if until_ns is not None:
            ending = ending[batch.raw["time_ns"][ending] <= until_ns]
        place = np.searchsorted(born["allocation"], partner[ending])
        ended = {name: column[place] for name, column in born.items()}
        self.live = {name: np.delete(column, place) for name, column in born.items()}
        return ending, ended

    def rows_of(self, allocation: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
        """Return the places in ``live`` of blocks in use, by their numbers."""
        return np.searchsorted(self.live["allocation"], allocation)
