"""The records of a trace as the entries of a PyTorch memory snapshot, a device at a time."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.categories import CATEGORY_NAMES
from gpumemtrace.export.live_rows import LiveRows
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["ACTIONS", "Entries", "EntryStream", "text_of"]

ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "annotate",
)
_ALLOC, _FREE_REQUESTED, _FREE_COMPLETED, _OOM, _ANNOTATE = 0, 1, 2, 7, 8
_SEGMENT_ACTIONS = {
    Kind.SEGMENT_ALLOC: 3,
    Kind.SEGMENT_FREE: 4,
    Kind.SEGMENT_MAP: 5,
    Kind.SEGMENT_UNMAP: 6,
}
_Arrays = dict[str, npt.NDArray[Any]]
# Entries of one record come in this order: a record has room for so many.
_ROOM = 8


class Entries(NamedTuple):
    """Entries of one device, in order.

    ``columns``: ``row`` (place of the record in its batch, times `_ROOM`), ``action`` (index into
    `ACTIONS`), ``address``, ``size``, ``stream``, ``time_ns``, ``step``, ``phase``, ``extra`` (of
    an oom: free bytes of the device; of an annotation: its category), ``text`` (of an annotation),
    ``site`` (of an alloc, else 0).
    """

    columns: _Arrays

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The record of its batch that each entry comes from; ascending."""
        rows: npt.NDArray[np.int64] = self.columns["row"] // _ROOM
        return rows


class _Waiting(NamedTuple):
    address: int
    size: int
    stream: int
    block: int


class EntryStream:
    """Turns batches into entries; feed them in order, those before a slice too.

    A block that another stream uses is freed in two parts: ``free_requested`` where the program
    frees it, ``free_completed`` where the allocator's counters say that as much became free.
    """

    def __init__(self, trace: TraceData) -> None:
        self.blocks = LiveRows()
        self.unknown_frees = 0
        self.lost_frees = 0
        self._trace = trace
        self._shared: set[tuple[int, int]] = set()
        self._waiting: dict[int, deque[_Waiting]] = {}
        self._allocated: dict[int, int] = {}

    def feed(
        self,
        batch: Batch,
        device: npt.NDArray[np.int16],
        allocated: npt.NDArray[np.int64],
        gone: _Arrays,
    ) -> dict[int, Entries]:
        """Return the entries of each device.

        ``device``, ``allocated``: those of the lines; ``gone``: see `feed_segments`.
        """
        raw = batch.raw
        kind = raw["kind"]
        names = ("address", "size_bytes", "stream", "device", "site")
        noted = {name: raw[name] for name in names}
        noted |= {"step": batch.step, "phase": batch.phase}
        ending, ended = self.blocks.feed(batch, noted)
        is_free = kind[ending] == Kind.FREE
        if not batch.is_lead_in:
            self.unknown_frees += int(np.count_nonzero(kind == Kind.FREE) - is_free.sum())
            self.lost_frees += int(np.count_nonzero(~is_free))

        parts = [self._plain(batch)]
        # A free that is missing is put right before the alloc that proves it.
        place = ending * _ROOM + np.where(is_free, 2, 0)
        free = {
            "address": ended["address"],
            "size": ended["size_bytes"],
            "stream": ended["stream"],
            "device": ended["device"],
        }
        completed = np.ones(len(ending), np.bool_)
        parts.append(_with(batch, ending, place, _FREE_REQUESTED, free))
        waiting = self._wait(
            batch, ending, free, completed, self._blocks_of(device, allocated, ending)
        )
        free = {name: column[completed] for name, column in free.items()}
        where = ending[completed], place[completed] + 1
        parts += [_with(batch, *where, _FREE_COMPLETED, free), *waiting]
        at, freed = gone["row"], {n: c for n, c in gone.items() if n != "row"}
        parts.append(_with(batch, at, at * _ROOM, _SEGMENT_ACTIONS[Kind.SEGMENT_FREE], freed))

        found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        order = np.argsort(found["row"], kind="stable")
        found = {name: column[order] for name, column in found.items()}
        return {
            number: Entries({n: c[found["device"] == number] for n, c in found.items()})
            for number in np.unique(found["device"]).tolist()
        }

    def waiting(self, device: int) -> set[int]:
        """Return the addresses of freed blocks that wait for another stream."""
        return {block.address for block in self._waiting.get(device, ())}

    def _plain(self, batch: Batch) -> _Arrays:
        """Return the entries of records that each make one: allocs, segments, failures, tags."""
        raw, kind = batch.raw, batch.raw["kind"]
        action = np.full(len(batch), -1, np.int64)
        action[kind == Kind.ALLOC] = _ALLOC
        action[kind == Kind.ALLOC_FAILED] = _OOM
        action[kind == Kind.TAG] = _ANNOTATE
        for segment_kind, segment_action in _SEGMENT_ACTIONS.items():
            action[kind == segment_kind] = segment_action
        action[raw["device"] < 0] = -1
        rows = np.flatnonzero(action >= 0)
        place = rows * _ROOM + 4
        # Older recorders told of a segment right after the alloc that it was taken for.
        is_late = np.isin(kind[rows], (Kind.SEGMENT_ALLOC, Kind.SEGMENT_MAP)) & (rows > 0)
        before = rows[is_late] - 1
        follows = (kind[before] == Kind.ALLOC) & (
            raw["address"][before] == raw["address"][rows[is_late]]
        )
        place[np.flatnonzero(is_late)[follows]] = before[follows] * _ROOM + 3
        columns = {
            "address": raw["address"][rows],
            "size": raw["size_bytes"][rows],
            "stream": np.where(kind[rows] == Kind.TAG, 0, raw["stream"][rows]),
            "device": raw["device"][rows],
        }
        part = _with(batch, rows, place, action[rows], columns)
        part["site"] = np.where(kind[rows] == Kind.ALLOC, raw["site"][rows], 0).astype(np.int64)
        is_tag = kind[rows] == Kind.TAG
        part["extra"] = np.where(is_tag, raw["stream"][rows], raw["extra"][rows]).astype(np.int64)
        part["text"] = np.where(is_tag, raw["extra"][rows], 0).astype(np.int64)
        return part

    def _wait(
        self,
        batch: Batch,
        ending: npt.NDArray[np.intp],
        free: _Arrays,
        completed: npt.NDArray[np.bool_],
        blocks: npt.NDArray[np.int64],
    ) -> list[_Arrays]:
        """Note which frees are not completed at once, and return those that are later on."""
        raw, kind = batch.raw, batch.raw["kind"]
        used = batch.rows_of(Kind.RECORD_STREAM)
        if not len(used) and not self._shared and not any(self._waiting.values()):
            return []
        later: list[_Arrays] = []
        rows: dict[int, int | None] = {
            int(row): None for row in [*used, *batch.rows_of(Kind.STATS)]
        }
        rows |= {int(row): i for i, row in enumerate(ending)}
        known = {address for _, address in self._shared} | set(raw["address"][used].tolist())
        for row, i in sorted(rows.items()):
            number = int(raw["device"][row] if i is None else free["device"][i])
            if i is not None:
                key = number, int(free["address"][i])
                if key[1] in known and key in self._shared:
                    self._shared.discard(key)
                    completed[i] = kind[row] != Kind.FREE
                    if not completed[i]:
                        block = _Waiting(
                            key[1], int(free["size"][i]), int(free["stream"][i]), int(blocks[i])
                        )
                        self._waiting.setdefault(number, deque()).append(block)
            elif kind[row] == Kind.RECORD_STREAM:
                self._shared.add((number, int(raw["address"][row])))
            else:
                pending = int(raw["stream"][row]) - int(raw["address"][row])
                waiting = self._waiting.setdefault(number, deque())
                while waiting and sum(block.block for block in waiting) > pending:
                    block = waiting.popleft()
                    columns = {
                        "address": np.array([block.address], np.uint64),
                        "size": np.array([block.size]),
                        "stream": np.array([block.stream], np.uint64),
                        "device": np.array([number], np.int16),
                    }
                    place = np.array([row]) * _ROOM
                    later.append(_with(batch, np.array([row]), place, _FREE_COMPLETED, columns))
        return later

    def _blocks_of(
        self,
        device: npt.NDArray[np.int16],
        allocated: npt.NDArray[np.int64],
        rows: npt.NDArray[np.intp],
    ) -> npt.NDArray[np.int64]:
        """Return what the line of allocated bytes fell by at each of ``rows``."""
        before = np.zeros(len(allocated), np.int64)
        for number in np.unique(device[device >= 0]).tolist():
            mine = np.flatnonzero(device == number)
            before[mine[1:]] = allocated[mine[:-1]]
            before[mine[0]] = self._allocated.get(number, 0)
            self._allocated[number] = int(allocated[mine[-1]])
        fall: npt.NDArray[np.int64] = np.maximum(before[rows] - allocated[rows], 0)
        return fall


def text_of(trace: TraceData, entries: Entries, row: int) -> str:
    """Return what an annotation says: its category and name."""
    category = int(entries.columns["extra"][row])
    name = CATEGORY_NAMES[category] if category < len(CATEGORY_NAMES) else CATEGORY_NAMES[0]
    return f"{name}: {trace.text(int(entries.columns['text'][row]))}"


def _with(
    batch: Batch, rows: npt.NDArray[Any], place: npt.NDArray[Any], action: Any, columns: _Arrays
) -> _Arrays:
    none = np.zeros(len(rows), np.int64)
    dtypes = {"address": np.uint64, "size": np.int64, "stream": np.uint64, "device": np.int16}
    return {
        "row": place,
        "action": none + action,
        **{name: columns[name].astype(dtype, copy=False) for name, dtype in dtypes.items()},
        "time_ns": batch.raw["time_ns"][rows],
        "step": batch.step[rows],
        "phase": batch.phase[rows],
        "extra": none,
        "text": none,
        "site": none,
    }
