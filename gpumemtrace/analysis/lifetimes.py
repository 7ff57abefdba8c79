"""Each allocation with its birth and its death."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.schema import Category, Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["CATEGORY_NAMES", "Lifetimes", "find_lifetimes"]

CATEGORY_NAMES: tuple[str, ...] = tuple(category.name.lower() for category in Category)


@dataclass(frozen=True)
class Lifetimes:
    """One row per alloc, in the order in which they happened.

    ``address`` uint64; ``size_bytes`` int64, as requested; ``birth_index``, ``death_index`` int64,
    the events that began and ended it (``death_index`` -1: alive at the end); ``birth_step``,
    ``death_step`` int64; ``birth_phase``, ``death_phase`` int32, indices into
    `Trace.phase_names` (-1: none, or alive at the end); ``category_id`` uint8, index into
    `CATEGORY_NAMES`, from tags in the trace (0 = unknown).

    A block whose free is missing dies at the alloc that gets its address next.
    """

    address: npt.NDArray[np.uint64]
    size_bytes: npt.NDArray[np.int64]
    birth_index: npt.NDArray[np.int64]
    death_index: npt.NDArray[np.int64]
    birth_step: npt.NDArray[np.int64]
    death_step: npt.NDArray[np.int64]
    birth_phase: npt.NDArray[np.int32]
    death_phase: npt.NDArray[np.int32]
    category_id: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.address)

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        """Return a column by its name."""
        if column not in (*self.__dataclass_fields__, "category"):
            raise KeyError(column)
        found: npt.NDArray[Any] = getattr(self, column)
        return found

    @property
    def category(self) -> npt.NDArray[np.str_]:
        """The category of each row by name: ``parameter``, ``gradient``, … ``unknown``."""
        return np.array(CATEGORY_NAMES)[self.category_id]


def find_lifetimes(trace: TraceData) -> Lifetimes:
    """Pair every alloc with its free, in one pass."""
    pairing = _core.Pairing()
    births: list[dict[str, npt.NDArray[Any]]] = [_births_of(None)]
    deaths: list[dict[str, npt.NDArray[Any]]] = []
    tags: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]] = []
    for batch in trace.chunks():
        raw, is_event = batch.raw, batch.is_event
        partner = pairing.feed(raw)
        event = batch.first_event + np.cumsum(is_event) - is_event
        where = {"event": event, "step": batch.step, "phase": batch.phase}
        births.append(_births_of(raw | where))
        dying = is_event & (partner >= 0)
        deaths.append({name: column[dying] for name, column in where.items()})
        deaths[-1]["alloc"] = partner[dying]
        tagged = (raw["kind"] == Kind.TAG) & (partner >= 0)
        if tagged.any():
            category = raw["stream"][tagged]
            known = np.where(category < len(CATEGORY_NAMES), category, 0)
            tags.append((partner[tagged], known.astype(np.uint8)))

    born = {name: np.concatenate([part[name] for part in births]) for name in births[0]}
    births.clear()
    count = len(born["event"])
    death = {name: np.full(count, -1, born[name].dtype) for name in ("event", "step", "phase")}
    for part in deaths:
        for name, column in death.items():
            column[part["alloc"]] = part[name]
    category_id = np.zeros(count, np.uint8)
    for alloc, category in tags:
        category_id[alloc] = category
    return Lifetimes(
        address=born["address"],
        size_bytes=born["size_bytes"],
        birth_index=born["event"],
        death_index=death["event"],
        birth_step=born["step"],
        death_step=death["step"],
        birth_phase=born["phase"],
        death_phase=death["phase"],
        category_id=category_id,
    )


_BIRTH_COLUMNS = {
    "address": "u8",
    "size_bytes": "i8",
    "event": "i8",
    "step": "i8",
    "phase": "i4",
}


def _births_of(columns: dict[str, npt.NDArray[Any]] | None) -> dict[str, npt.NDArray[Any]]:
    if columns is None:
        return {name: np.zeros(0, dtype) for name, dtype in _BIRTH_COLUMNS.items()}
    is_alloc = columns["kind"] == Kind.ALLOC
    return {name: columns[name][is_alloc] for name in _BIRTH_COLUMNS}
