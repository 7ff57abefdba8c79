"""Trace files, opened and written: the native reader and writer in Python's terms.

A file that was cut, damaged or is still being written opens all the same: what can be read is
read, and `TraceFile.problems` says what is missing, by sequence number. Events are numbered by
their position in the trace, from 0.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.errors import (
    CorruptTraceError,
    NotATraceError,
    TraceError,
    UnsupportedVersionError,
)
from gpumemtrace.recovery import describe_recovered, recover
from gpumemtrace.schema import COLUMNS
from gpumemtrace.trace_texts import FOOTER, RUN_RECORD, Shape, check_rows, keep_shaped, parse_object

__all__ = ["CODECS", "Columns", "FileWriter", "Names", "Problem", "ThreadName", "TraceFile"]

CODECS = (1, 2)
"""How events can be stored (docs/file-format.md)."""

Columns = dict[str, npt.NDArray[Any]]
"""Equal-length arrays by name, with the dtypes of `schema.COLUMNS`."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something wrong with a file that can be read all the same.

    ``kind`` is one of ``damaged_preamble``, ``damaged_bytes``, ``damaged_chunk``, ``truncated``,
    ``missing_chunks``, ``foreign_chunk``, ``unknown_chunk`` (no events), ``unknown_codec``
    (events), ``damaged_index``, ``not_closed``, ``bad_text`` (whole, but not the JSON it should
    be; ``offset`` is then 0), ``recovered`` (its process was killed; nothing is missing) and
    ``not_recovered`` (it was, and what it left can't be had here), both without an ``offset``: -1.
    Events ``first_missing_sequence`` up to
    ``first_missing_sequence + missing_count`` (exclusive) can't be had because of it;
    ``missing_count`` is None when nobody can say how many.
    """

    kind: str
    offset: int
    message: str
    first_missing_sequence: int = 0
    missing_count: int | None = 0


@dataclass(frozen=True, kw_only=True)
class ThreadName:
    """A thread that recorded events: the system's number and name for it."""

    os_tid: int
    name: str


@dataclass(frozen=True, kw_only=True)
class Names:
    """Texts behind the numbers in events. A number may lack its text in a damaged file."""

    phases: Mapping[int, tuple[int, str]] = field(default_factory=dict)
    """Phase path id -> (id of the path it is nested in, 0 = none; name)."""
    strings: Mapping[int, str] = field(default_factory=dict)
    """String id -> text, of marks and tags."""
    threads: Mapping[int, ThreadName] = field(default_factory=dict)
    """Thread index -> thread."""
    modules: Mapping[int, tuple[int, str]] = field(default_factory=dict)
    """Module id -> (id of its outermost module, path in there), or (0, name) for such a one."""
    codes: Mapping[int, tuple[str, str, int]] = field(default_factory=dict)
    """Code id -> (file, function, first line)."""
    frames: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)
    """Frame id -> (id of the frame that called it, 0 = none; code id; line, 0 = unknown)."""
    sites: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)
    """Site of an event -> (module id, 0 = none; innermost frame, 0 = none; `StackState`)."""


class TraceFile:
    """A trace file, open for reading. Opening reads headers, run record and names, no events.

    Where the process that wrote it was killed, what it had not written yet is recovered first.

    Raises `NotATraceError`, `UnsupportedVersionError` or `CorruptTraceError` when nothing can be
    read as a trace, and `OSError` when the system can't read the file.

    Attributes: ``path``; ``format_version`` (major, minor); ``size_bytes``; ``chunks``, a
    structured array with one row per chunk of events (``offset, stored_bytes, first_sequence,
    count, first_time_ns, last_time_ns, flags, codec, type``); ``run_record``, what is known of the
    run; ``names``; ``footer``, what the writer said at the end, or None.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._open()
        self._recover()

    def _open(self, *, tail_offset: int | None = None, tail: bytes = b"") -> None:
        try:
            self._file = _core.TraceFile(os.fsencode(self.path), tail_offset=tail_offset, tail=tail)
        except _core.FormatError as error:
            raise _trace_error(self.path, *error.args) from None
        self.format_version: tuple[int, int] = self._file.format_version
        self.size_bytes: int = self._file.size_bytes
        self.chunks: npt.NDArray[np.void] = self._file.chunks
        self.chunks.flags.writeable = False
        self._own_problems: list[Problem] = []
        self.run_record: dict[str, Any] = {}
        for text in self._file.metadata:
            _merge(self.run_record, self._parse(text, "the run record", RUN_RECORD))
        self.names = Names()
        for text in self._file.names:
            self._add_names(self._parse(text, "a table of names", {}))
        footer = self._file.footer
        self.footer: dict[str, Any] | None = (
            None if footer is None else self._parse(footer, "the footer", FOOTER)
        )
        if recovered := describe_recovered(self.footer or {}):
            self._own_problems.append(Problem(kind="recovered", offset=-1, message=recovered))

    def _recover(self) -> None:
        done = recover(self.path, self.run_record, is_closed=self.footer is not None)
        if done is None or self.footer is not None or done.outcome == "writer_lives":
            return
        if done.outcome == "left_alone":
            message = f"what its process had not written yet is still in memory: {done.why}"
            self._own_problems.append(Problem(kind="not_recovered", offset=-1, message=message))
        elif done.outcome == "in_memory":
            self._open(tail_offset=done.offset, tail=done.tail)
            message = f"{done.events:,} records stay in shared memory, for {done.why}"
            self._own_problems.append(Problem(kind="recovered", offset=-1, message=message))
        elif done.outcome == "in_file" or self.path.stat().st_size != self.size_bytes:
            self._open()

    @property
    def complete(self) -> bool:
        """Whether the writer closed the file (and its last chunk is intact)."""
        return self.footer is not None and "recovered" not in self.footer

    @property
    def event_count(self) -> int:
        """Events in the chunks listed; some may turn out to be damaged when they are read."""
        return int(self.chunks["count"].sum())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong, as far as is known: payloads are checked only when they are read."""
        native = (
            Problem(
                kind=kind,
                offset=offset,
                message=message,
                first_missing_sequence=first,
                missing_count=count,
            )
            for kind, offset, message, first, count in self._file.problems
        )
        return (*native, *self._own_problems)

    def read(self, first: int = 0, last: int | None = None) -> Columns:
        """Events of the chunks ``first`` up to ``last`` (exclusive; None: to the end), in order.

        Returns one array per column of `schema.COLUMNS`. The events of a damaged chunk are left
        out and become a problem. Any thread: several may read at once, each where it likes; one
        that goes on where it was reads fastest. Raises `IndexError` when there are no such chunks.
        """
        count = len(self.chunks)
        last = count if last is None else last
        if not 0 <= first <= last <= count:
            raise IndexError(f"chunks {first} to {last} of {count}")
        columns: Columns = self._file.read(first, last)
        return columns

    def iter(self, first: int = 0, last: int | None = None) -> Iterator[Columns]:
        """Like `read`, chunk by chunk; chunks that can't be read are left out."""
        last = len(self.chunks) if last is None else last
        for chunk in range(first, last):
            columns = self.read(chunk, chunk + 1)
            if len(columns["kind"]):
                yield columns

    def verify(self) -> tuple[Problem, ...]:
        """Read every event, keep none, and return all that is wrong with the file."""
        for _ in self.iter():
            pass
        return self.problems

    def _parse(self, text: bytes, what: str, shape: Shape) -> dict[str, Any]:
        try:
            value = parse_object(text)
        except ValueError as error:  # also what is no UTF-8
            self._report_text(f"{what} is not a JSON object: {error}")
            return {}
        kept, wrong = keep_shaped(value, shape)
        if wrong:
            self._report_text(f"{what} holds values of the wrong type: {', '.join(wrong)}")
        return kept

    def _add_names(self, tables: Mapping[str, Any]) -> None:
        names = self.names
        rows: dict[str, list[list[Any]]] = {}
        wrong: list[str] = []
        for table in (entry.name for entry in fields(Names)):
            rows[table], what = check_rows(table, tables.get(table, []))
            wrong += [what] if what else []
        if wrong:
            self._report_text(f"a table of names: {'; '.join(wrong)}")
        self.names = Names(
            phases={**names.phases, **{i: (p, n) for i, p, n in rows["phases"]}},
            strings={**names.strings, **dict(rows["strings"])},
            threads={
                **names.threads,
                **{i: ThreadName(os_tid=t, name=n) for i, t, n in rows["threads"]},
            },
            modules={**names.modules, **{i: (r, n) for i, r, n in rows["modules"]}},
            codes={**names.codes, **{i: (f, n, b) for i, f, n, b in rows["codes"]}},
            frames={**names.frames, **{i: (o, c, b) for i, o, c, b in rows["frames"]}},
            sites={**names.sites, **{i: (m, f, s) for i, m, f, s in rows["sites"]}},
        )

    def _report_text(self, message: str) -> None:
        self._own_problems.append(Problem(kind="bad_text", offset=0, message=message))


class FileWriter:
    """Writes a trace file. ``time_resolution_ns``: coarser times make smaller files.

    ``codec`` 1 stores each chunk of events for itself; 2, the smaller one, builds on the chunks
    before, up to ``events_per_keyframe`` events: a damaged chunk takes the rest of those with it.
    ``max_disk_bytes``: room that the file may take, 0 = no limit; older steps are then told in
    summary, and ``rounds`` counts how often that was done (docs/long-runs.md).

    Raises `OSError` when the system can't write; `FileExistsError` unless ``overwrite``. As a
    context manager it closes the file; after an exception it leaves it without a footer, as a
    killed process would.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        time_resolution_ns: int = 1,
        overwrite: bool = False,
        codec: int = 2,
        events_per_keyframe: int = 1 << 20,
        max_disk_bytes: int = 0,
    ) -> None:
        if time_resolution_ns < 1:
            raise ValueError(f"time_resolution_ns must be 1 or more, not {time_resolution_ns}")
        if codec not in CODECS:
            raise ValueError(f"codec must be 1 or 2, not {codec}")
        if events_per_keyframe < 1:
            raise ValueError(f"events_per_keyframe must be 1 or more, not {events_per_keyframe}")
        if max_disk_bytes and max_disk_bytes < 1 << 20:
            raise ValueError(f"max_disk_bytes must be 1 MiB or more, not {max_disk_bytes}")
        self._writer = _core.FileWriter(
            os.fsencode(path),
            time_resolution_ns,
            overwrite,
            codec,
            events_per_keyframe,
            max_disk_bytes,
        )

    @property
    def bytes_written(self) -> int:
        """Bytes in the file so far."""
        return int(self._writer.bytes_written)

    @property
    def rounds(self) -> int:
        """How often the file was made smaller to stay below ``max_disk_bytes``."""
        return int(self._writer.rounds)

    def append(self, columns: Mapping[str, npt.ArrayLike]) -> None:
        """Append events: equal-length columns of `schema.COLUMNS`; all but ``kind`` may be absent
        (zeros). Raises `ValueError` for a value outside its column's dtype.
        """
        unknown = set(columns) - set(COLUMNS)
        if unknown:
            raise ValueError(f"no such columns: {', '.join(sorted(unknown))}")
        if "kind" not in columns:
            raise ValueError("the column 'kind' is needed")
        self._writer.append({name: _exact(name, values) for name, values in columns.items()})

    def write_metadata(self, record: Mapping[str, Any]) -> None:
        """Add to the run record: later keys win, one level deep."""
        self._writer.write_metadata(json.dumps(record))

    def write_names(self, names: Names) -> None:
        """Name phases, strings, threads and sites."""
        self._writer.write_names(
            json.dumps(
                {
                    "phases": [[i, parent, name] for i, (parent, name) in names.phases.items()],
                    "strings": [[i, text] for i, text in names.strings.items()],
                    "threads": [[i, t.os_tid, t.name] for i, t in names.threads.items()],
                    **{
                        table: [[i, *row] for i, row in getattr(names, table).items()]
                        for table in ("modules", "codes", "frames", "sites")
                        if getattr(names, table)
                    },
                }
            )
        )

    def flush(self) -> None:
        """Write the events that are buffered, as a chunk of their own."""
        self._writer.flush()

    def close(self, footer: Mapping[str, Any] | None = None) -> None:
        """Write what is buffered and the footer; closing again does nothing."""
        self._writer.close(json.dumps(footer or {}))

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()


def _trace_error(path: Path, kind: str, offset: int, message: str) -> TraceError:
    if kind == "not_a_trace":
        return NotATraceError(f"{path}: not a gpumemtrace trace: {message}")
    if kind == "newer_version":
        return UnsupportedVersionError(
            f"{path}: {message}; upgrade with: pip install --upgrade gpumemtrace"
        )
    return CorruptTraceError(
        f"{path}: damaged at byte {offset}: {message}; nothing after it can be read as a trace",
        offset=offset,
    )


def _merge(record: dict[str, Any], later: Mapping[str, Any]) -> None:
    for key, value in later.items():
        earlier = record.get(key)
        if isinstance(earlier, dict) and isinstance(value, dict):
            record[key] = {**earlier, **value}
        else:
            record[key] = value


def _exact(name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """``values`` in the column's dtype; `ValueError` when one does not fit."""
    array = np.asarray(values)
    dtype = COLUMNS[name]
    if array.ndim != 1:
        raise ValueError(f"column {name!r} must have one dimension, not {array.ndim}")
    if array.dtype != dtype and array.size:
        if array.dtype.kind not in "iub":
            raise TypeError(f"column {name!r} must hold integers, not {array.dtype}")
        limits = np.iinfo(dtype)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise ValueError(f"column {name!r} holds a value that does not fit {dtype}")
    return np.ascontiguousarray(array, dtype=dtype)
