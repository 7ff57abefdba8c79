"""Each allocation with its birth, its death, and what it was for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.analysis.aged import find_aged
from gpumemtrace.analysis.categories import CATEGORY_NAMES, RULES, Categories, find_categories
from gpumemtrace.html_tables import MOST_ROWS, html_table
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind, StatsCause
from gpumemtrace.trace_data import TraceData

__all__ = ["CATEGORY_NAMES", "FATE_NAMES", "Lifetimes", "find_lifetimes"]

FATE_NAMES = ("freed", "alive", "lost")
_FREED, _ALIVE, _LOST = range(3)

_Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Lifetimes:
    """One row per alloc, in the order in which they happened.

    ====================================  ======  ==================================================
    ``address``, ``stream``               uint64
    ``size_bytes``                        int64   as requested
    ``device``                            int16
    ``birth_index``, ``death_index``      int64   the events that began and ended it
    ``birth_step``, ``death_step``        int64
    ``birth_phase``, ``death_phase``      int32   indices into `Trace.phase_names`, -1 = none
    ``birth_thread``, ``death_thread``    uint32  0 = none
    ``fate_id``                           uint8   index into `FATE_NAMES`
    ``is_from_before``                    bool    it was there when the recording began
    ``is_from_aged``                      bool    born in a step that was summarised since
    ``category_id``, ``rule_id``          uint8   see `gpumemtrace.analysis.categories`
    ``driver_ns``                         int64   nanoseconds that its request spent in the driver
    ====================================  ======  ==================================================

    Of a summarised step (`gpumemtrace.analysis.aged`) only blocks that outlived it have a row;
    their ``birth_step`` and ``birth_phase`` are exact, their time is that of the phase.

    A fate is ``freed``; ``alive`` at the end (the columns of death are -1, ``death_thread`` 0); or
    ``lost``: its free is missing, and it ends at the alloc that gets its address next.

    ``driver_ns`` is 0 for a block from the allocator's cache, which takes a fraction of a
    microsecond and is not timed. For one that needed the driver it is the time from the miss to
    the block: cudaMalloc or the mapping of memory, and what was flushed and tried again before.

    ``unborn_frees``: frees of blocks that are no row, from before the trace or lost in a gap.
    """

    address: npt.NDArray[np.uint64]
    size_bytes: npt.NDArray[np.int64]
    birth_index: npt.NDArray[np.int64]
    death_index: npt.NDArray[np.int64]
    birth_step: npt.NDArray[np.int64]
    death_step: npt.NDArray[np.int64]
    birth_phase: npt.NDArray[np.int32]
    death_phase: npt.NDArray[np.int32]
    birth_thread: npt.NDArray[np.uint32]
    death_thread: npt.NDArray[np.uint32]
    stream: npt.NDArray[np.uint64]
    device: npt.NDArray[np.int16]
    fate_id: npt.NDArray[np.uint8]
    is_from_before: npt.NDArray[np.bool_]
    is_from_aged: npt.NDArray[np.bool_]
    category_id: npt.NDArray[np.uint8]
    rule_id: npt.NDArray[np.uint8]
    driver_ns: npt.NDArray[np.int64]
    unborn_frees: int

    def __len__(self) -> int:
        return len(self.address)

    def _repr_html_(self) -> str:
        """Show the first rows in a notebook."""
        columns = ("address", "size_bytes", "category", "birth_step", "death_step", "fate")
        first = {name: self[name][:MOST_ROWS].tolist() for name in columns}
        rows = [
            (hex(address), f"{size:,}", *map(str, others))
            for address, size, *others in zip(*first.values(), strict=True)
        ]
        title = f"Lifetimes of {len(self):,} allocations: the first {len(rows)}"
        return html_table(title, columns, rows)

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        """Return a column by its name."""
        columns = {*self.__dataclass_fields__, "category", "fate", "rule"} - {"unborn_frees"}
        if column not in columns:
            raise KeyError(column)
        found: npt.NDArray[Any] = getattr(self, column)
        return found

    @property
    def category(self) -> npt.NDArray[np.str_]:
        """The category of each row by name: ``parameter``, ``gradient``, … ``unknown``."""
        return np.array(CATEGORY_NAMES)[self.category_id]

    @property
    def rule(self) -> npt.NDArray[np.str_]:
        """The name of the rule that decided each row's category, see `RULES`."""
        return np.array([rule.name for rule in RULES])[self.rule_id]

    @property
    def fate(self) -> npt.NDArray[np.str_]:
        """The fate of each row by name: ``freed``, ``alive`` or ``lost``."""
        return np.array(FATE_NAMES)[self.fate_id]


def find_lifetimes(trace: TraceData, *, categories: Categories | None = None) -> Lifetimes:
    """Pair every alloc with its free, in one pass, and one more for `find_categories`.

    ``categories``: of this trace, where the caller has them already.
    """
    pairing = _core.Pairing()
    births, deaths, driver = [_births_of(None)], [], []
    before_of: dict[int, int] = {}  # device -> number of the first alloc after its baseline
    first_alloc = 0  # of this trace or slice, counted in the whole
    for batch in trace.chunks(lead_in=True):
        raw = batch.raw
        if batch.is_lead_in:
            first_alloc += int(np.count_nonzero(raw["kind"] == Kind.ALLOC))
            continue
        _note_baseline(batch, pairing.allocs, before_of)
        partner = pairing.feed(raw)
        where = _places_of(batch)
        births.append(_births_of(raw | where))
        dying = batch.is_event & (partner >= 0)
        deaths.append({name: column[dying] for name, column in where.items()})
        deaths[-1]["alloc"] = partner[dying]
        deaths[-1]["fate"] = np.where(raw["kind"][dying] == Kind.FREE, _FREED, _LOST)
        driver += _driver_times(batch, partner)

    born = {name: np.concatenate([part[name] for part in births]) for name in births[0]}
    births.clear()
    count = len(born["event"])
    death = {name: np.full(count, -1, born[name].dtype) for name in ("event", "step", "phase")}
    death |= {"thread": np.zeros(count, np.uint32), "fate": np.full(count, _ALIVE, np.uint8)}
    for part in deaths:
        for name, column in death.items():
            column[part["alloc"]] = part[name]
    driver_ns = np.zeros(count, np.int64)
    for alloc, ns in driver:
        np.maximum.at(driver_ns, alloc, ns)
    is_from_before = np.zeros(count, np.bool_)
    for device, end in before_of.items():
        is_from_before[:end] |= born["device"][:end] == device
    if categories is None:
        categories = find_categories(trace)
    rows = slice(first_alloc, first_alloc + count)
    return Lifetimes(
        address=born["address"],
        size_bytes=born["size_bytes"],
        birth_index=born["event"],
        death_index=death["event"],
        birth_step=born["step"],
        death_step=death["step"],
        birth_phase=born["phase"],
        death_phase=death["phase"],
        birth_thread=born["thread"],
        death_thread=death["thread"],
        stream=born["stream"],
        device=born["device"],
        fate_id=death["fate"],
        is_from_before=is_from_before,
        is_from_aged=find_aged(trace).covers(born["step"]),
        category_id=categories.category_id[rows],
        rule_id=categories.rule_id[rows],
        driver_ns=driver_ns,
        unborn_frees=pairing.unborn_frees,
    )


_BIRTH_COLUMNS = {
    "address": "u8",
    "size_bytes": "i8",
    "event": "i8",
    "step": "i8",
    "phase": "i4",
    "thread": "u4",
    "stream": "u8",
    "device": "i2",
}


def _births_of(columns: _Columns | None) -> _Columns:
    if columns is None:
        return {name: np.zeros(0, dtype) for name, dtype in _BIRTH_COLUMNS.items()}
    is_alloc = columns["kind"] == Kind.ALLOC
    return {name: columns[name][is_alloc] for name in _BIRTH_COLUMNS}


def _places_of(batch: Batch) -> _Columns:
    event = batch.first_event + np.cumsum(batch.is_event) - batch.is_event
    thread = batch.raw["thread"]
    return {"event": event, "step": batch.step, "phase": batch.phase, "thread": thread}


def _note_baseline(batch: Batch, allocs: int, before_of: dict[int, int]) -> None:
    """Note how many allocs precede the reading that ends the description of what was there."""
    raw, rows = batch.raw, batch.rows_of(Kind.STATS)
    for row in rows[raw["flags"][rows] == StatsCause.BASELINE].tolist():
        device = int(raw["device"][row])
        if device not in before_of:
            before_of[device] = allocs + int(np.count_nonzero(raw["kind"][:row] == Kind.ALLOC))


def _driver_times(
    batch: Batch, partner: npt.NDArray[np.int64]
) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Return the allocs that needed the driver, and how long; an alloc may come twice."""
    found = []
    for kind in (Kind.SEGMENT_ALLOC, Kind.SEGMENT_MAP, Kind.RETRY):
        rows = batch.rows_of(kind)
        rows = rows[(partner[rows] >= 0) & (batch.raw["extra"][rows] > 0)]
        if len(rows):
            found.append((partner[rows], batch.raw["extra"][rows].astype(np.int64)))
    return found
