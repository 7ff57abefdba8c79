"""PyTorch's memory snapshots (`torch.cuda.memory._dump_snapshot`), read and checked.

A snapshot is a pickle, and a pickle may run anything. This one is read by a reader of our own that
knows plain data only (csrc/python/bind_plain_pickle.cc), so a snapshot of a stranger is safe to
read. Then every value that is used is checked: a snapshot that is not what PyTorch writes is one
clear error, with the place in it.

Versions: torch 2.0 to 2.14 are known. Older ones have no ``time_us``, and keep what was requested
of a block in its ``history``; newer ones add ``external_annotations`` and ``user_metadata``. A
pickle of `torch.cuda.memory_snapshot` (a list: segments alone) is taken too.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gpumemtrace import _core
from gpumemtrace.errors import SnapshotError
from gpumemtrace.imports.snapshot_stacks import Stack, Stacks, WrongShapeError

__all__ = ["Annotation", "Block", "Entry", "Segment", "Snapshot", "read_snapshot"]

_MOST_BYTES = 8 << 30
# An entry that PyTorch writes takes more; a pickle may repeat one list for next to nothing.
_FEWEST_ENTRY_BYTES = 20
_MOST_DEVICES = 1024


class Entry(NamedTuple):
    """One entry of a device's history; what an action lacks is 0 or empty.

    ``stack``: 1 + index into the stacks of the snapshot.
    """

    action: str
    address: int
    size: int
    stream: int
    time_us: int | None
    device_free: int
    metadata: str
    pool: tuple[int, int] | None
    stack: int


@dataclass(frozen=True)
class Block:
    """A block of a segment when the snapshot was taken; ``requested`` is 0 for a free one.

    ``stack``: that of its allocation, 1 + index into the stacks of the snapshot; 0 = not known.
    """

    address: int
    size: int
    requested: int
    state: str
    stack: int = 0

    @property
    def is_allocated(self) -> bool:
        """Whether a tensor (or someone else) has it."""
        return self.state == "active_allocated"

    @property
    def is_pending(self) -> bool:
        """Whether it was freed and waits for another stream."""
        return self.state in ("active_awaiting_free", "active_pending_free")


@dataclass(frozen=True)
class Segment:
    """Memory that the allocator had taken from the driver when the snapshot was taken."""

    device: int
    address: int
    size: int
    stream: int
    is_small: bool
    is_expandable: bool
    pool: tuple[int, int]
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Annotation:
    """A range that the program named (`torch.profiler.record_function`), where it begins or ends.

    ``entry``: how many entries of its device come before it; None = by its time. ``is_mark``: it
    is one instant, where `gpumemtrace export` put it.
    """

    name: str
    is_start: bool
    is_mark: bool
    time_us: int
    device: int
    entry: int | None


@dataclass(frozen=True)
class Snapshot:
    """A snapshot: ``traces`` has the history of each device by its number, oldest first."""

    segments: tuple[Segment, ...]
    traces: tuple[tuple[Entry, ...], ...]
    annotations: tuple[Annotation, ...]
    settings: Mapping[str, Any]
    run_record: Mapping[str, Any]
    stacks: tuple[Stack, ...]


def read_snapshot(path: Path) -> Snapshot:
    """Read and check the snapshot in ``path``.

    Raises `SnapshotError` when it is not plain data or not a snapshot; `OSError` when the system
    can't read it.
    """
    size = path.stat().st_size
    if size > _MOST_BYTES:
        raise SnapshotError(f"{path}: {size >> 30} GiB is more than this reads (8 GiB)")
    content = path.read_bytes()
    was_collecting = gc.isenabled()
    gc.disable()  # millions of new containers, none of them garbage
    try:
        data = _core.load_plain_pickle(content)
        return _checked(data, len(content))
    except _core.FormatError as error:
        _, offset, message = error.args
        raise SnapshotError(
            f"{path}: not a PyTorch memory snapshot: {message}, at byte {offset}; nothing in it "
            "was run"
        ) from None
    except (WrongShapeError, UnicodeDecodeError) as error:
        raise SnapshotError(f"{path}: not a PyTorch memory snapshot: {error}") from None
    finally:
        if was_collecting:
            gc.enable()


def _checked(data: object, size_bytes: int) -> Snapshot:
    if isinstance(data, list):
        data = {"segments": data}
    top = _as(dict, data, "the snapshot")
    if "segments" not in top:
        raise WrongShapeError("it has no 'segments'")
    traces = _items(top, "device_traces", "the snapshot")
    if len(traces) > _MOST_DEVICES:
        raise WrongShapeError(f"it has {len(traces)} devices")
    segments = _items(top, "segments", "the snapshot")
    annotations = _items(top, "external_annotations", "the snapshot")
    lists = [_as(list, trace, f"device_traces[{i}]") for i, trace in enumerate(traces)]
    blocks = [_items(s, "blocks", f"segments[{i}]") for i, s in _dicts(segments, "segments")]
    said = sum(map(len, [*lists, *blocks, segments, annotations]))
    if said * _FEWEST_ENTRY_BYTES > size_bytes + 4096:
        raise WrongShapeError(f"{said} entries do not fit into its {size_bytes} bytes")
    stacks = Stacks(is_own="gpumemtrace" in top)
    return Snapshot(
        segments=tuple(
            _segment(s, f"segments[{i}]", stacks) for i, s in _dicts(segments, "segments")
        ),
        traces=tuple(
            tuple(_entry(e, place, i, stacks) for i, e in _dicts(trace, place))
            for place, trace in ((f"device_traces[{n}]", trace) for n, trace in enumerate(lists))
        ),
        annotations=tuple(_annotations(annotations)),
        settings=_as(dict, top.get("allocator_settings", {}), "allocator_settings"),
        run_record=_own_record(top),
        stacks=stacks.known,
    )


def _entry(entry: dict[str, Any], place: str, i: int, stacks: Stacks) -> Entry:
    get = entry.get
    action, address, size, stream = get("action"), get("addr", 0), get("size", 0), get("stream", 0)
    time_us, metadata, pool = get("time_us"), get("user_metadata", ""), get("pool_id")
    free = get("device_free", 0)
    numbers = (address, size, stream, free, 0 if time_us is None else time_us)
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers):
        raise WrongShapeError(f"{place}[{i}] holds a number that is none, or out of range")
    if type(action) is not str or type(metadata) is not str:
        raise WrongShapeError(f"{place}[{i}] has no 'action' that is a text")
    return Entry(
        action,
        address,
        size,
        stream,
        time_us,
        free,
        metadata,
        pool and _pool(pool, f"{place}[{i}]"),
        stacks.number_of(entry, f"{place}[{i}]") if action == "alloc" else 0,
    )


def _segment(segment: dict[str, Any], place: str, stacks: Stacks) -> Segment:
    address = _number(segment, "address", place)
    blocks = []
    at = address
    for i, block in _dicts(_items(segment, "blocks", place), f"{place}.blocks"):
        size = _number(block, "size", f"{place}.blocks[{i}]")
        state = _as(str, block.get("state"), f"{place}.blocks[{i}].state")
        is_free = state == "inactive"
        requested = 0 if is_free else block.get("requested_size")
        told_by = block
        if requested is None:  # before torch 2.1
            history = _items(block, "history", f"{place}.blocks[{i}]")
            first = _as(dict, history[0], f"{place}.blocks[{i}].history") if history else {}
            requested = first.get("real_size", size)
            told_by = first
        if type(requested) is not int or not 0 <= requested <= size:
            raise WrongShapeError(f"{place}.blocks[{i}] has a 'requested_size' above its size")
        stack = 0 if is_free else stacks.number_of(told_by, f"{place}.blocks[{i}]")
        blocks.append(Block(at, size, requested, state, stack))
        at += size
    total = _number(segment, "total_size", place)
    if at > address + total or at >= 1 << 63:
        raise WrongShapeError(f"{place} has blocks beyond its end")
    return Segment(
        device=_number(segment, "device", place, most=_MOST_DEVICES),
        address=address,
        size=total,
        stream=_number(segment, "stream", place),
        is_small=segment.get("segment_type") == "small",
        is_expandable=segment.get("is_expandable") is True,
        pool=_pool(segment.get("segment_pool_id", (0, 0)), place),
        blocks=tuple(blocks),
    )


def _annotations(rows: Sequence[object]) -> Iterator[Annotation]:
    for i, row in _dicts(rows, "external_annotations"):
        place = f"external_annotations[{i}]"
        stage = row.get("stage")
        if stage in ("START", "END"):
            yield Annotation(
                name=_as(str, row.get("name"), f"{place}.name"),
                is_start=stage == "START",
                is_mark=row.get("kind") == "mark",
                time_us=_number(row, "time_us", place),
                device=_number(row, "device", place, most=_MOST_DEVICES),
                entry=_number(row, "entry", place) if "entry" in row else None,
            )


def _own_record(top: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the run record that `gpumemtrace export` put into the snapshot; else nothing."""
    own = top.get("gpumemtrace")
    record = own.get("run_record") if isinstance(own, dict) else None
    return record if isinstance(record, dict) else {}


def _as(kind: type[Any], value: object, place: str) -> Any:
    if not isinstance(value, kind):
        raise WrongShapeError(f"{place} is a {type(value).__name__}, not a {kind.__name__}")
    return value


def _items(owner: Mapping[str, Any], name: str, place: str) -> list[Any]:
    items: list[Any] = _as(list, owner.get(name, []), f"{place}.{name}")
    return items


def _dicts(rows: Sequence[object], place: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for i, row in enumerate(rows):
        if type(row) is not dict:
            raise WrongShapeError(f"{place}[{i}] is a {type(row).__name__}, not a dict")
        yield i, row


def _number(owner: Mapping[str, Any], name: str, place: str, *, most: int = (1 << 63) - 1) -> int:
    value = owner.get(name, 0 if name in ("stream", "device") else None)
    if type(value) is not int or not 0 <= value <= most:
        raise WrongShapeError(f"{place} has no {name!r} that is a number from 0 to {most}")
    return value


def _pool(value: object, place: str) -> tuple[int, int]:
    if isinstance(value, tuple | list) and len(value) == 2:
        first, second = value
        if type(first) is int and type(second) is int and min(first, second) >= 0:
            return first, second
    raise WrongShapeError(f"{place} has a pool that is no pair of numbers")
