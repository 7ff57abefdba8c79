"""A PyTorch memory snapshot, written as a trace."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpumemtrace.analysis.lifetimes import CATEGORY_NAMES
from gpumemtrace.imports.annotations import PhaseTracker
from gpumemtrace.imports.device_history import DeviceHistory, Record
from gpumemtrace.imports.snapshot import Annotation, Entry, Snapshot, read_snapshot
from gpumemtrace.imports.snapshot_stacks import names_of
from gpumemtrace.schema import Kind
from gpumemtrace.trace_file import FileWriter

__all__ = ["Imported", "import_snapshot"]

_ROWS = 1 << 15
_THREAD = 1  # a snapshot does not say which thread did what
_COLUMNS = (
    "time_ns",
    "device",
    "kind",
    "address",
    "size_bytes",
    "stream",
    "extra",
    "flags",
    "site",
)


@dataclass(frozen=True)
class Imported:
    """What became of a snapshot.

    ``entries`` of its histories; ``before``: blocks that were there before the first of them;
    ``contradictions``: entries that can't be so and were left out; ``has_times``: False = they were
    made up, one microsecond an entry, since torch before 2.2 noted none.
    """

    entries: int
    before: int
    contradictions: int
    has_times: bool


def import_snapshot(
    snapshot: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    force: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Imported:
    """Write the trace of the snapshot in the file ``snapshot`` to ``output``.

    ``on_progress`` is called now and then with the entries done and the entries in all. Raises
    `SnapshotError` when the file is no snapshot; `FileExistsError` unless ``force``.
    """
    found = read_snapshot(Path(snapshot))
    conversion = _Conversion(found)
    with FileWriter(output, time_resolution_ns=1000, overwrite=force) as writer:
        rows: list[tuple[int, ...]] = []
        for row in conversion.rows():
            rows.append(row)
            if len(rows) == _ROWS:
                _append(writer, rows)
                on_progress(conversion.done, conversion.result().entries)
        _append(writer, rows)
        writer.write_metadata(conversion.run_record(Path(snapshot).name))
        names = replace(
            names_of(found.stacks),
            phases=conversion.tracker.paths,
            strings=conversion.tracker.texts,
        )
        writer.write_names(names)
        writer.close({"reason": "imported"})
    return conversion.result()


class _Conversion:
    """Merges the histories of all devices and the annotations by time."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        traces = snapshot.traces
        count = max([len(traces), *(s.device + 1 for s in snapshot.segments)])
        self._traces = {n: traces[n] if n < len(traces) else () for n in range(count)}
        self._histories = {
            number: DeviceHistory(
                entries,
                [s for s in snapshot.segments if s.device == number],
                snapshot.settings,
            )
            for number, entries in self._traces.items()
        }
        annotations = snapshot.annotations
        # PyTorch tells each device of every range.
        self._lead = min((a.device for a in annotations), default=0)
        self._annotations = [a for a in annotations if a.device == self._lead]
        self.tracker = PhaseTracker(self._annotations)
        self._has_times = all(e.time_us is not None for t in traces for e in t)
        times = [t[0].time_us or 0 for t in traces if t] if self._has_times else [0]
        times += [a.time_us for a in self._annotations[:1]] if self._has_times else []
        self._origin_us = min(times, default=0)
        self._before = 0
        self.done = 0

    def rows(self) -> Iterator[tuple[int, ...]]:
        """Yield the rows of the trace, the columns in the order of `_COLUMNS`."""
        for number, history in self._histories.items():
            if self._traces[number] or any(s.device == number for s in self._snapshot.segments):
                for record in history.baseline():
                    self._before += record.kind == Kind.ALLOC
                    yield _row(0, number, record)
        waiting = iter(self._annotations)
        following = next(waiting, None)
        time_ns = 0
        for time_us, number, index in heapq.merge(
            *(self._times(number, entries) for number, entries in self._traces.items())
        ):
            while following is not None and self._is_due(following, time_us, number, index):
                time_ns = max(time_ns, self._time_ns(following.time_us))
                yield from self._mark_rows(time_ns, self.tracker.annotation(following))
                following = next(waiting, None)
            time_ns = max(time_ns, self._time_ns(time_us))
            entry = self._traces[number][index]
            self.done += 1
            yield from self._mark_rows(time_ns, self.tracker.metadata(_phase_of(entry)))
            for record in self._histories[number].records(index):
                yield _row(time_ns, number, record)
            yield from self._notes(time_ns, number, entry)
        while following is not None:
            time_ns = max(time_ns, self._time_ns(following.time_us))
            yield from self._mark_rows(time_ns, self.tracker.annotation(following))
            following = next(waiting, None)

    def run_record(self, name: str) -> Mapping[str, Any]:
        """Return what is known of the run, and what it was made from."""
        ignored: dict[str, int] = {}
        for history in self._histories.values():
            for action, count in history.ignored.items():
                ignored[action] = ignored.get(action, 0) + count
        settings = self._snapshot.settings
        conf = settings.get("PYTORCH_CUDA_ALLOC_CONF") or None
        known = {"allocator": {"backend": "native", "settings": conf}} if settings else {}
        clock = {"clock": {"begin_wall_ns": self._origin_us * 1000}} if self._has_times else {}
        result = self.result()
        return {
            **known,
            **self._snapshot.run_record,
            **clock,
            "imported": {
                "from": "a PyTorch memory snapshot",
                "file": name,
                "entries": result.entries,
                "blocks_before_the_first": result.before,
                "contradictions": result.contradictions,
                "ignored_actions": ignored,
                "times": "of the snapshot" if self._has_times else "made up, 1 us an entry",
            },
        }

    def result(self) -> Imported:
        """Return what became of the snapshot, once `rows` has gone by."""
        return Imported(
            entries=sum(map(len, self._traces.values())),
            before=self._before,
            contradictions=sum(h.contradictions for h in self._histories.values()),
            has_times=self._has_times,
        )

    def _times(self, number: int, entries: tuple[Entry, ...]) -> Iterator[tuple[int, int, int]]:
        latest = 0
        for index, entry in enumerate(entries):
            latest = max(latest, entry.time_us or 0) if self._has_times else index
            yield latest, number, index

    def _is_due(self, annotation: Annotation, time_us: int, number: int, index: int) -> bool:
        if annotation.entry is None:
            return self._has_times and annotation.time_us <= time_us
        return number == self._lead and annotation.entry <= index

    def _time_ns(self, time_us: int) -> int:
        return max(time_us - self._origin_us, 0) * 1000

    def _mark_rows(
        self, time_ns: int, marks: Iterable[tuple[Kind, int, int]]
    ) -> Iterator[tuple[int, ...]]:
        for kind, value, flags in marks:
            yield time_ns, -1, int(kind), 0, value, 0, 0, int(flags), 0

    def _notes(self, time_ns: int, number: int, entry: Entry) -> Iterator[tuple[int, ...]]:
        """Yield the record for an entry that only says something."""
        if entry.action == "snapshot":
            yield time_ns, number, int(Kind.MARK), 0, self.tracker.text_id("snapshot"), 0, 0, 0, 0
        elif entry.action == "annotate":
            category, separator, name = entry.metadata.partition(": ")
            if not separator or category not in CATEGORY_NAMES:
                category, name = "unknown", entry.metadata
            size = self._histories[number].size_of(entry.address)
            id = self.tracker.text_id(name)
            stream = CATEGORY_NAMES.index(category)
            yield time_ns, number, int(Kind.TAG), entry.address, size, stream, id, 0, 0


def _phase_of(entry: Entry) -> str:
    return "" if entry.action == "annotate" else entry.metadata


def _row(time_ns: int, device: int, record: Record) -> tuple[int, ...]:
    return time_ns, device, *map(int, record)


def _append(writer: FileWriter, rows: list[tuple[int, ...]]) -> None:
    """Write the rows and forget them."""
    if rows:
        table = np.array(rows, np.int64)
        columns = {name: table[:, i] for i, name in enumerate(_COLUMNS)}
        writer.append({**columns, "thread": np.full(len(rows), _THREAD)})
        rows.clear()
