"""A trace for Perfetto (ui.perfetto.dev): the lines as counters, phases and steps as slices.

The messages are written by a few lines of our own (protobuf.py): what we need of the format is ten
fields, whose numbers never change, and rows of counters are encoded by numpy at once. With the
packages `protobuf` and `perfetto` each value would be a Python object, twenty times slower, and two
dependencies; the tests read the files back with those two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.lines import LINES, Lines, LineStream
from gpumemtrace.export.formats import ExportOptions, Written
from gpumemtrace.export.phase_changes import unchanged
from gpumemtrace.export.protobuf import PADDED_BYTES, number, padded, text, varint
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind, PhaseFlags
from gpumemtrace.trace_data import TraceData
from gpumemtrace.units import format_bytes, format_count

__all__ = ["write"]

# Fields of Perfetto's protos/perfetto/trace/perfetto_trace.proto.
_PACKET = 1
_TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _TRACK_DESCRIPTOR = 8, 10, 11, 60
_TYPE, _TRACK, _NAME, _VALUE = 9, 11, 23, 30
_UUID, _TRACK_NAME, _PROCESS, _THREAD, _PARENT, _COUNTER = 1, 2, 3, 4, 5, 8
_BEGIN, _END, _INSTANT, _COUNT = 1, 2, 3, 4
_UNIT_BYTES = number(3, 3)  # CounterDescriptor.unit = UNIT_SIZE_BYTES

_PROCESS_UUID, _STEPS_UUID = 1, 2
_DEVICE_UUIDS, _THREAD_UUIDS = 1 << 16, 1 << 32
_UNKNOWN = np.iinfo(np.int64).min


def write(trace: TraceData, output: Path, options: ExportOptions) -> Written:
    """Write the trace as it is read."""
    export = _Export(trace, options)
    with output.open("wb") as file:
        file.write(export.process())
        stream = LineStream(trace)
        for batch, lines in stream:
            for part in export.feed(batch, lines, stream):
                file.write(part)
            if export.is_done:
                break
        file.write(export.finish())
    return Written(export.packets, "packets")


class _Export:
    """Encodes batches; remembers what is open and what was told last."""

    def __init__(self, trace: TraceData, options: ExportOptions) -> None:
        self._trace = trace
        self._options = options
        self._told: dict[tuple[int, int], int] = {}  # device, line -> bytes
        self._open: dict[int, tuple[str, ...]] = {}  # thread -> phases
        self._described: set[int] = set()
        self._step: int | None = None
        self._last_ns = 0
        self.packets = 0
        self.is_done = False

    def process(self) -> bytes:
        """Return the packet that names the process."""
        record = self._trace.run_record
        argv = record.get("argv")
        name = " ".join(map(str, argv)) if isinstance(argv, list) and argv else "gpumemtrace"
        process = number(1, self._pid()) + text(6, name)
        return self._describe(_PROCESS_UUID, text(_PROCESS, process))

    def feed(self, batch: Batch, lines: Lines, stream: LineStream) -> Iterator[bytes]:
        """Yield the packets of a batch."""
        until = self._options.until_ns
        rows = len(batch)
        if until is not None:
            late = np.flatnonzero(batch.raw["time_ns"] > until)
            rows = int(late[0]) if len(late) else rows
            self.is_done = rows < len(batch)
        if not rows:
            return
        self._last_ns = int(batch.raw["time_ns"][:rows].max())
        devices = {*lines.devices, *batch.raw["device"][batch.rows_of(Kind.DEVICE_USED)].tolist()}
        for device in sorted(devices - {-1}):
            if self._options.wants(device):
                yield from self._counters(device, batch, lines, stream, rows)
        kinds = (
            *(Kind.PHASE, Kind.STEP, Kind.MARK, Kind.GAP),
            *(Kind.ALLOC_FAILED, Kind.RETRY, Kind.EMPTY_CACHE),
        )
        if self._step is None:
            yield self._to_step(batch, 0)
        for row in np.flatnonzero(np.isin(batch.raw["kind"][:rows], kinds)).tolist():
            yield self._mark(batch, row)

    def finish(self) -> bytes:
        """Return the packets that close what is open."""
        ends = [
            self._event(self._last_ns, _THREAD_UUIDS + thread, _END)
            for thread, names in self._open.items()
            for _ in names
        ]
        if self._step is not None:
            ends.append(self._event(self._last_ns, _STEPS_UUID, _END))
        return b"".join(ends)

    def _counters(
        self, device: int, batch: Batch, lines: Lines, stream: LineStream, end: int
    ) -> Iterator[bytes]:
        points = lines.points(device)
        for i, name in enumerate(LINES):
            is_sampled = name not in points.values
            rows = points.used_rows if is_sampled else points.rows
            values = points.used if is_sampled else points.values[name]
            if name in ("active", "reserved") and not stream.has_stats.get(device, False):
                continue
            values, rows = values[rows < end], rows[rows < end]
            changed = np.diff(values, prepend=self._told.get((device, i), _UNKNOWN)) != 0
            if not changed.any():
                continue
            uuid = _DEVICE_UUIDS + device * len(LINES) + i
            if uuid not in self._described:
                label = f"cuda:{device} {name.replace('_', ' ')}"
                counter = text(_COUNTER, _UNIT_BYTES)
                yield self._describe(uuid, text(_TRACK_NAME, label) + counter)
            self._told[device, i] = int(values[-1])
            yield self._points(uuid, batch.raw["time_ns"][rows[changed]], values[changed])

    def _points(
        self, uuid: int, time_ns: npt.NDArray[np.int64], values: npt.NDArray[np.int64]
    ) -> bytes:
        """Return a packet per value; all have one length."""
        event = number(_TYPE, _COUNT) + number(_TRACK, uuid) + varint(_VALUE << 3)
        head = number(_SEQUENCE, 1) + varint(_TIMESTAMP << 3)
        size = len(event) + PADDED_BYTES
        middle = varint(_TRACK_EVENT << 3 | 2) + varint(size) + event
        whole = len(head) + PADDED_BYTES + len(middle) + PADDED_BYTES
        head = varint(_PACKET << 3 | 2) + varint(whole) + head
        begin, then = (
            np.broadcast_to(np.frombuffer(part, np.uint8), (len(values), len(part)))
            for part in (head, middle)
        )
        self.packets += len(values)
        return np.hstack([begin, padded(time_ns), then, padded(values)]).tobytes()

    def _mark(self, batch: Batch, row: int) -> bytes:
        raw = batch.raw
        kind, time_ns = raw["kind"][row], int(raw["time_ns"][row])
        size, device = int(raw["size_bytes"][row]), int(raw["device"][row])
        if kind == Kind.STEP:
            return self._to_step(batch, row) if size != self._step else b""
        thread = int(raw["thread"][row])
        if kind == Kind.PHASE:
            return self._to_path(batch, row, thread)
        if device >= 0 and not self._options.wants(device):
            return b""
        names = {
            Kind.ALLOC_FAILED: f"out of memory: {format_bytes(size)} on cuda:{device}",
            Kind.RETRY: f"cache flushed for {format_bytes(size)} on cuda:{device}",
            Kind.EMPTY_CACHE: "empty_cache",
            Kind.GAP: f"{format_count(int(raw['address'][row]), 'event')} lost",
            Kind.MARK: self._trace.text(size),
        }
        track = self._thread(thread)
        return track + self._event(time_ns, _THREAD_UUIDS + thread, _INSTANT, names[kind])

    def _to_step(self, batch: Batch, row: int) -> bytes:
        time_ns = int(batch.raw["time_ns"][row])
        parts = []
        if self._step is None:
            parts.append(self._describe(_STEPS_UUID, text(_TRACK_NAME, "steps")))
        else:
            parts.append(self._event(time_ns, _STEPS_UUID, _END))
        self._step = int(batch.step[row])
        name = f"step {self._trace.marks.numbers_of(self._step)}"
        parts.append(self._event(time_ns, _STEPS_UUID, _BEGIN, name))
        return b"".join(parts)

    def _to_path(self, batch: Batch, row: int, thread: int) -> bytes:
        raw = batch.raw
        time_ns = int(raw["time_ns"][row])
        index = int(self._trace.path_of_id(raw["size_bytes"][row : row + 1])[0])
        path = self._trace.phase_paths[index] if index >= 0 else ()
        before = self._open.get(thread, ())
        is_entered = bool(raw["flags"][row] & PhaseFlags.ENTERED)
        same = unchanged(before, path, is_entered=is_entered)
        uuid = _THREAD_UUIDS + thread
        self._open[thread] = path
        return b"".join(
            [
                self._thread(thread),
                *(self._event(time_ns, uuid, _END) for _ in before[same:]),
                *(self._event(time_ns, uuid, _BEGIN, name) for name in path[same:]),
            ]
        )

    def _thread(self, thread: int) -> bytes:
        uuid = _THREAD_UUIDS + thread
        if uuid in self._described:
            return b""
        name = "driving thread" if thread == self._trace.driving_thread else f"thread {thread}"
        descriptor = number(1, self._pid()) + number(2, self._pid() + thread) + text(5, name)
        return self._describe(uuid, text(_THREAD, descriptor))

    def _pid(self) -> int:
        pid = (
            self._trace.run_record.get("pid") if isinstance(self._trace.run_record, Mapping) else 0
        )
        return pid if isinstance(pid, int) and pid > 0 else 1

    def _describe(self, uuid: int, what: bytes) -> bytes:
        self._described.add(uuid)
        parent = number(_PARENT, _PROCESS_UUID) if uuid != _PROCESS_UUID else b""
        return self._packet(text(_TRACK_DESCRIPTOR, number(_UUID, uuid) + parent + what))

    def _event(self, time_ns: int, uuid: int, kind: int, name: str | None = None) -> bytes:
        event = number(_TYPE, kind) + number(_TRACK, uuid)
        event += b"" if name is None else text(_NAME, name)
        return self._packet(number(_TIMESTAMP, time_ns) + text(_TRACK_EVENT, event))

    def _packet(self, fields: bytes) -> bytes:
        self.packets += 1
        return text(_PACKET, number(_SEQUENCE, 1) + fields)
