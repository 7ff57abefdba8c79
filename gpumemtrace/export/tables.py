"""A trace as tables: a row an event, or a row an allocation. Streamed, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.categories import CATEGORY_NAMES, RULES, find_categories
from gpumemtrace.analysis.lines import ALLOCATOR_LINES, LineStream
from gpumemtrace.export.formats import ExportOptions
from gpumemtrace.export.live_rows import LiveRows
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["TABLES", "Column", "Table", "concatenated", "read_table"]

TABLES = ("events", "allocations")

_Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Column:
    """``names``: the values are indices into them, -1 = none; ``is_nullable``: -1 = none."""

    dtype: str
    names: tuple[str, ...] | None = None
    is_nullable: bool = False


@dataclass(frozen=True)
class Table:
    """Columns by name, and their rows in parts: arrays of one length for each column."""

    columns: dict[str, Column]
    parts: Iterator[_Arrays]


def read_table(trace: TraceData, options: ExportOptions) -> Table:
    """Return ``options.table`` of the trace.

    ``events``: allocs and frees in order; ``size_bytes`` is what was requested, of a free too;
    ``requested_bytes`` to ``reserved_bytes`` are the lines of the device after the event (reserved
    and active null where the trace has no counters).

    ``allocations``: every allocation that lived in the trace (or slice): those that ended, in the
    order of their end, then those alive. What is not known of an end, or lies outside a slice, is
    null.
    """
    if options.table == "events":
        return Table(_event_columns(trace), _event_parts(trace, options))
    if options.table == "allocations":
        return Table(_allocation_columns(trace), _allocation_parts(trace, options))
    raise ValueError(f"no table {options.table!r}: there are {' and '.join(TABLES)}")


def _phase_column(trace: TraceData) -> Column:
    return Column("i4", names=trace.phase_names)


# --- events -----------------------------------------------------------------------------------


def _event_columns(trace: TraceData) -> dict[str, Column]:
    return {
        "event": Column("i8"),
        "time_ns": Column("i8"),
        "kind": Column("i1", names=("alloc", "free")),
        "device": Column("i2"),
        "address": Column("u8"),
        "size_bytes": Column("i8"),
        "stream": Column("u8"),
        "thread": Column("u4"),
        "step": Column("i8"),
        "phase": _phase_column(trace),
        **{f"{name}_bytes": Column("i8", is_nullable=True) for name in ALLOCATOR_LINES},
    }


def _event_parts(trace: TraceData, options: ExportOptions) -> Iterator[_Arrays]:
    stream = LineStream(trace)
    sizes = _FreedSizes()
    is_first = True
    for batch, lines in stream:
        if is_first:
            sizes.begin(stream.initial)
            is_first = False
        size = sizes.feed(batch, lines.device, lines.values["requested"])
        raw = batch.raw
        chosen = batch.is_event & _is_wanted(lines.device, raw["time_ns"], options)
        rows = np.flatnonzero(chosen)
        known = stream.has_stats
        is_known = np.isin(lines.device[rows], [d for d, has in known.items() if has])
        values = {f"{name}_bytes": line[rows] for name, line in lines.values.items()}
        for name in ("active_bytes", "reserved_bytes"):
            values[name] = np.where(is_known, values[name], -1)
        yield {
            "event": batch.events_before(rows),
            "time_ns": raw["time_ns"][rows],
            "kind": (raw["kind"][rows] == Kind.FREE).astype(np.int8),
            "device": lines.device[rows],
            "address": raw["address"][rows],
            "size_bytes": size[rows],
            "stream": raw["stream"][rows],
            "thread": raw["thread"][rows],
            "step": batch.step[rows],
            "phase": batch.phase[rows],
            **values,
        }


class _FreedSizes:
    """Tells what each free gives back, from the line of requested bytes."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}

    def begin(self, initial: dict[int, dict[str, int]]) -> None:
        """Take the lines of each device as they are before the first record."""
        self._last = {device: lines["requested"] for device, lines in initial.items()}

    def feed(
        self, batch: Batch, device: npt.NDArray[np.int16], requested: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return for each record the bytes that it asks for or gives back (0 for other kinds)."""
        kind = batch.raw["kind"]
        size = np.where(kind == Kind.ALLOC, batch.raw["size_bytes"], 0)
        for number in np.unique(device[device >= 0]).tolist():
            rows = np.flatnonzero(device == number)
            line = requested[rows]
            before = np.concatenate([[self._last.get(number, 0)], line[:-1]])
            is_free = kind[rows] == Kind.FREE
            size[rows[is_free]] = (before - line)[is_free]
            self._last[number] = int(line[-1])
        return size


def _is_wanted(
    device: npt.NDArray[np.int16], time_ns: npt.NDArray[np.int64], options: ExportOptions
) -> npt.NDArray[np.bool_]:
    wanted = np.ones(len(device), np.bool_)
    if options.devices is not None:
        wanted &= np.isin(device, sorted(options.devices))
    if options.until_ns is not None:
        wanted &= time_ns <= options.until_ns
    return wanted


# --- allocations ------------------------------------------------------------------------------

_BIRTH = {"event": "i8", "time_ns": "i8", "step": "i8", "phase": "i4", "thread": "i8"}


def _allocation_columns(trace: TraceData) -> dict[str, Column]:
    ends = {
        f"{end}_{name}": _phase_column(trace)
        if name == "phase"
        else Column(dtype, is_nullable=end == "death" or name == "event")
        for end in ("birth", "death")
        for name, dtype in _BIRTH.items()
    }
    return {
        "allocation": Column("i8"),
        "device": Column("i2"),
        "address": Column("u8"),
        "size_bytes": Column("i8"),
        "stream": Column("u8"),
        **ends,
        "category": Column("u1", names=CATEGORY_NAMES),
        "rule": Column("u1", names=tuple(rule.name for rule in RULES)),
    }


def _allocation_parts(trace: TraceData, options: ExportOptions) -> Iterator[_Arrays]:
    categories = find_categories(trace)
    blocks = LiveRows()
    for batch in trace.chunks(lead_in=True):
        raw, where = batch.raw, _places_of(batch)
        noted = {name: raw[name] for name in ("device", "address", "size_bytes", "stream")}
        noted |= {f"birth_{name}": column for name, column in where.items()}
        ending, ended = blocks.feed(batch, noted, until_ns=options.until_ns)
        if not batch.is_lead_in and len(ending):
            ended |= {f"death_{name}": column[ending] for name, column in where.items()}
            yield _finished(ended, categories, options)
    if blocks.live:
        count = len(blocks.live["allocation"])
        none = {f"death_{name}": np.full(count, -1, dtype) for name, dtype in _BIRTH.items()}
        yield _finished(blocks.live | none, categories, options)


def _places_of(batch: Batch) -> _Arrays:
    event = batch.first_event + np.cumsum(batch.is_event) - batch.is_event
    return {
        "event": np.full(len(batch), -1) if batch.is_lead_in else event,
        "time_ns": batch.raw["time_ns"],
        "step": batch.step,
        "phase": batch.phase,
        "thread": batch.raw["thread"].astype(np.int64),
    }


def _finished(rows: _Arrays, categories: Any, options: ExportOptions) -> _Arrays:
    chosen = _is_wanted(rows["device"], rows["birth_time_ns"], options)
    rows = {name: column[chosen] for name, column in rows.items()}
    number = rows["allocation"]
    rows["category"] = categories.category_id[number]
    rows["rule"] = categories.rule_id[number]
    return rows


def concatenated(columns: Sequence[str], parts: Iterator[_Arrays]) -> _Arrays:
    """Return all parts of a table as one; for tables that fit into memory."""
    found = list(parts)
    return {
        name: np.concatenate([part[name] for part in found]) if found else np.zeros(0, np.int64)
        for name in columns
    }
