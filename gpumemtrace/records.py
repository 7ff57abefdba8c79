"""Where a trace gets its records from: a file, or memory.

A *record* is one entry of the file: an alloc or free (an *event* in the public API), or a mark, a
reading of counters, a sample, a gap. Records come as columns: a mapping of `RAW_COLUMNS` to numpy
arrays of one length. What the columns mean for each kind is said in ``csrc/trace/event.h``.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gpumemtrace.read_ahead import read_ahead
from gpumemtrace.schema import COLUMNS, Kind
from gpumemtrace.trace_file import FileWriter, Names, Problem, TraceFile

__all__ = [
    "RAW_COLUMNS",
    "Batch",
    "FileSource",
    "ForwardingSource",
    "MemorySource",
    "RecordSource",
    "Records",
    "empty_records",
    "write_records",
]

Records = dict[str, npt.NDArray[Any]]

# As in the file, but for sizes, which are signed wherever they are added up.
RAW_COLUMNS: dict[str, np.dtype[Any]] = {**COLUMNS, "size_bytes": np.dtype(np.int64)}


_MOST_TIME_NS = 1 << 61  # 73 years from the beginning: differences don't overflow


@dataclass(frozen=True)
class Batch:
    """Consecutive records of a trace with their step and phase; all arrays have one length.

    ``raw``: the columns of `RAW_COLUMNS`. ``step``: int64. ``phase``: int32, index into
    `Trace.phase_names`; ``phase_path``: int32, index into `Trace.phase_paths`; -1 = none.
    ``first_event``: events (allocs and frees) of the trace or slice before this batch;
    ``first_record``: records of the whole trace before it.
    ``is_lead_in``: the records lie before the slice that is being read; they are there for
    analyses that carry state.
    """

    raw: Records
    step: npt.NDArray[np.int64]
    phase: npt.NDArray[np.int32]
    phase_path: npt.NDArray[np.int32]
    first_event: int
    first_record: int
    is_lead_in: bool = False

    def __len__(self) -> int:
        return len(self.step)

    @cached_property
    def is_event(self) -> npt.NDArray[np.bool_]:
        """Which records are events: allocs and frees, the public rows."""
        kind: npt.NDArray[np.uint16] = self.raw["kind"]
        # Unsigned: kind 0 wraps around and is none.
        is_event: npt.NDArray[np.bool_] = kind - np.uint16(Kind.ALLOC) <= np.uint16(
            Kind.FREE - Kind.ALLOC
        )
        return is_event

    def rows_of(self, kind: Kind) -> npt.NDArray[np.intp]:
        """Return the places of the records of a kind."""
        rows: npt.NDArray[np.intp] = self.other_rows[self.raw["kind"][self.other_rows] == kind]
        return rows

    @cached_property
    def other_rows(self) -> npt.NDArray[np.intp]:
        """The places of the records that are no events."""
        return np.flatnonzero(~self.is_event)

    def events_before(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        """Return how many events of the trace lie before each of ``rows``, places, ascending."""
        others_before = np.searchsorted(self.other_rows, rows)
        return self.first_event + rows - others_before

    def window(self, first: int, end: int, *, first_event: int, is_lead_in: bool) -> Batch:
        """Return records ``first`` to ``end`` of this batch, as views."""
        part = slice(first, end)
        return Batch(
            {name: column[part] for name, column in self.raw.items()},
            self.step[part],
            self.phase[part],
            self.phase_path[part],
            first_event,
            self.first_record + first,
            is_lead_in,
        )


class RecordSource(Protocol):
    """Records in order, with what is known of the whole."""

    @property
    def names(self) -> Names:
        """What the ids stand for."""

    @property
    def run_record(self) -> Mapping[str, Any]:
        """What was written down about the run, as JSON-like values."""

    @property
    def footer(self) -> Mapping[str, Any]:
        """What the recorder said at the end: ``reason``, ``totals``; empty without an end."""

    @property
    def complete(self) -> bool:
        """Whether the recording was closed in an orderly way."""

    @property
    def problems(self) -> Sequence[Problem]:
        """What is wrong, as far as it has been read."""

    @property
    def path(self) -> str | None:
        """The file, None for records in memory."""

    @property
    def format_version(self) -> str:
        """The version of the file format (the one a save would write, for records in memory)."""

    @property
    def file_bytes(self) -> int:
        """The size of the file, 0 for records in memory."""

    @property
    def record_count(self) -> int:
        """How many records `batches` yields, a few more or less in a damaged file."""

    @property
    def time_span_ns(self) -> tuple[int, int]:
        """The times between which the records lie."""

    def batches(self) -> Iterator[Records]:
        """Yield all records in order, a bounded number at a time."""

    def pieces(self, first: int = 0) -> Generator[Sequence[Records], None, None]:
        """Yield the same batches, those together that are read together, from piece ``first`` on.

        Reading can begin at any piece; it costs little more than that piece.
        """


@dataclass(frozen=True)
class MemorySource:
    """Records that are in memory as a whole."""

    records: Records
    names: Names = field(default_factory=Names)
    run_record: Mapping[str, Any] = field(default_factory=dict)
    footer: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    complete: bool = True
    path: str | None = None
    format_version: str = "in memory"
    file_bytes: int = 0
    batch_records: int = 1 << 18

    @property
    def record_count(self) -> int:
        """How many records there are."""
        return len(self.records["kind"])

    @property
    def time_span_ns(self) -> tuple[int, int]:
        """The times between which the records lie."""
        times = self.records["time_ns"]
        return (int(times[0]), int(times.max())) if len(times) else (0, 0)

    def batches(self) -> Generator[Records, None, None]:
        """Yield views of `batch_records` records each."""
        for piece in self.pieces():
            yield from piece

    def pieces(self, first: int = 0) -> Generator[Sequence[Records], None, None]:
        """Yield each batch by itself, from number ``first`` on."""
        for start in range(first * self.batch_records, self.record_count, self.batch_records):
            window = slice(start, start + self.batch_records)
            yield [{name: column[window] for name, column in self.records.items()}]


class ForwardingSource:
    """Another source as it is: for a class that changes one thing of it; see `RecordSource`."""

    def __init__(self, source: RecordSource) -> None:
        """Read from ``source``."""
        self._source = source
        self.path: str | None = source.path
        self.format_version: str = source.format_version
        self.file_bytes: int = source.file_bytes
        self.names: Names = source.names
        self.run_record: Mapping[str, Any] = source.run_record
        self.footer: Mapping[str, Any] = source.footer

    @property
    def complete(self) -> bool:
        """Whether the recording was closed in an orderly way."""
        return self._source.complete

    @property
    def problems(self) -> Sequence[Problem]:
        """What is wrong, as far as it has been read."""
        return self._source.problems

    @property
    def record_count(self) -> int:
        """How many records there are; some may turn out to be damaged."""
        return self._source.record_count

    @property
    def time_span_ns(self) -> tuple[int, int]:
        """The times between which the records lie."""
        return self._source.time_span_ns

    def batches(self) -> Generator[Records, None, None]:
        """Yield the records, as `pieces` has them."""
        for piece in self.pieces():
            yield from piece

    def pieces(self, first: int = 0) -> Generator[Sequence[Records], None, None]:
        """Yield the same from piece ``first`` on."""
        yield from self._source.pieces(first)


class FileSource:
    """The records of a file. Where some can't be had, a `Kind.GAP` record stands for them."""

    BATCH_RECORDS = 1 << 18

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = TraceFile(path)
        self.path = os.fspath(path)
        self.format_version = ".".join(map(str, self._file.format_version))
        self.file_bytes = self._file.size_bytes
        self.names = self._file.names
        self.run_record: Mapping[str, Any] = self._file.run_record
        self.footer: Mapping[str, Any] = self._file.footer or {}

    @property
    def complete(self) -> bool:
        """Whether the recording was closed in an orderly way."""
        return self._file.complete

    @property
    def record_count(self) -> int:
        """How many records there are; some may turn out to be damaged."""
        return self._file.event_count

    @property
    def problems(self) -> Sequence[Problem]:
        """What is wrong, as far as it has been read."""
        return self._file.problems

    @property
    def time_span_ns(self) -> tuple[int, int]:
        """The times between which the records lie, by the outline of the file."""
        chunks = self._file.chunks
        if not len(chunks):
            return (0, 0)
        first, last = int(chunks["first_time_ns"][0]), int(chunks["last_time_ns"].max())
        return _possible(first), _possible(last)

    def batches(self) -> Generator[Records, None, None]:
        """Yield whole chunks, several at a time. The next ones are decoded meanwhile."""
        for piece in self.pieces():
            yield from piece

    def pieces(self, first: int = 0) -> Generator[Sequence[Records], None, None]:
        """Yield the same; decoding starts at the last keyframe before piece ``first``."""
        spans = islice(self._spans(), first, None)
        yield from read_ahead(self._read(*span) for span in spans)

    def _spans(self) -> Iterator[tuple[int, int, int]]:
        """Yield which chunks to read together (first, end), and the number that precedes them."""
        chunks = self._file.chunks
        count = chunks["count"].astype(np.int64)
        begin = chunks["first_sequence"].astype(np.int64)
        expected = 0
        first = 0
        while first < len(chunks):
            last = first + 1
            records = int(count[first])
            while (
                last < len(chunks)
                and begin[last] == begin[last - 1] + count[last - 1]
                and records + count[last] <= self.BATCH_RECORDS
            ):
                records += int(count[last])
                last += 1
            yield first, last, expected
            expected = int(begin[last - 1] + count[last - 1])
            first = last

    def _read(self, first: int, last: int, expected: int) -> list[Records]:
        chunks = self._file.chunks[first:last]
        begin = int(chunks["first_sequence"][0])
        missing = begin - expected
        found = (
            [_gap_record(_possible(int(chunks["first_time_ns"][0])), missing)]
            if missing > 0
            else []
        )
        batch = self._file.read(first, last)
        if len(batch["kind"]) == int(chunks["count"].sum()):
            return [*found, _usable(batch)]
        # Some chunk among these is damaged: say where.
        for i, chunk in enumerate(chunks, start=first):
            batch = self._file.read(i, i + 1)
            if len(batch["kind"]):
                found.append(_usable(batch))
            else:
                found.append(
                    _gap_record(_possible(int(chunk["first_time_ns"])), int(chunk["count"]))
                )
        return found


def _usable(batch: dict[str, npt.NDArray[Any]]) -> Records:
    """Return the batch with sizes signed, and no number that only a file made to hurt has."""
    time_ns, device = batch["time_ns"], batch["device"]
    if len(time_ns) and (time_ns.max() > _MOST_TIME_NS or time_ns.min() < -_MOST_TIME_NS):
        np.clip(time_ns, -_MOST_TIME_NS, _MOST_TIME_NS, out=time_ns)
    if len(device) and device.min() < -1:
        np.maximum(device, -1, out=device)
    return batch | {"size_bytes": batch["size_bytes"].view(np.int64)}


def _possible(time_ns: int) -> int:
    return min(max(time_ns, -_MOST_TIME_NS), _MOST_TIME_NS)


def empty_records(count: int = 0) -> dict[str, npt.NDArray[Any]]:
    """Return ``count`` records with 0 in every column."""
    return {name: np.zeros(count, dtype) for name, dtype in RAW_COLUMNS.items()}


def write_records(
    source: RecordSource,
    path: str | os.PathLike[str],
    *,
    time_resolution_ns: int,
    force: bool,
) -> None:
    """Write all records of ``source`` to a new file, with its run record, names and footer."""
    if source.path is not None and Path(path).exists() and Path(path).samefile(source.path):
        raise ValueError(f"{path}: a trace can't be saved over the file that it is read from")
    with FileWriter(path, time_resolution_ns=time_resolution_ns, overwrite=force) as writer:
        writer.write_metadata(source.run_record)
        writer.write_names(source.names)
        for records in source.batches():
            writer.append(records | {"size_bytes": records["size_bytes"].view(np.uint64)})
        writer.close({**source.footer, "reason": source.footer.get("reason", "saved")})


def _gap_record(time_ns: int, lost: int) -> Records:
    """Return the one record that says that ``lost`` records are missing here (0 = not known)."""
    record = empty_records(1)
    record["kind"][0] = Kind.GAP
    record["time_ns"][0] = time_ns
    record["address"][0] = lost
    record["device"][0] = -1
    return record
