"""A trace that is still being written: where the run is, from what was added since the last look.

The file is read, never the process: following a run costs it nothing.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpumemtrace import _core
from gpumemtrace.analysis.facts import DeviceFacts, device_facts
from gpumemtrace.analysis.lines import ALLOCATOR_LINES
from gpumemtrace.phase_names import PhaseNames
from gpumemtrace.schema import Kind
from gpumemtrace.trace_file import Columns, TraceFile

__all__ = ["Follower", "LiveDevice", "LiveStatus"]

# Chunks decoded at a time, so that a long file is caught up with in bounded memory.
_CHUNKS_AT_ONCE = 4


@dataclass(frozen=True)
class LiveDevice:
    """One device as of the last record: line -> bytes now, and the highest so far.

    Lines as in `gpumemtrace.analysis.lines.LINES`; those that the trace does not tell are absent.
    """

    device: int
    facts: DeviceFacts
    now: dict[str, int]
    peak: dict[str, int]


@dataclass(frozen=True)
class LiveStatus:
    """Where the run is. ``events_per_s``: since the look before, None at the first.

    ``step``: the one that is going on. ``phase``: path of the driving thread's phase, outermost
    first. ``age_s``: seconds since the file last grew. ``is_closed``: the recording has ended well;
    ``is_over``: nothing can come any more, since it ended or the process that wrote is gone (from
    another host nobody can tell: then it is not).
    """

    path: str
    events: int
    events_per_s: float | None
    dropped_events: int
    duration_s: float
    file_bytes: int
    age_s: float
    is_closed: bool
    is_over: bool
    step: int
    phase: tuple[str, ...]
    devices: tuple[LiveDevice, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values. Keys are added by later versions, none goes away."""
        return asdict(self) | {
            "phase": list(self.phase),
            "devices": [
                {
                    "device": d.device,
                    "name": d.facts.name,
                    "capacity_bytes": d.facts.capacity_bytes,
                    "now_bytes": d.now,
                    "peak_bytes": d.peak,
                }
                for d in self.devices
            ],
        }


class Follower:
    """Looks at a growing trace again and again; each look reads what is new."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Follow ``path``. Raises as `gpumemtrace.open` does, then and at every look."""
        self._path = Path(path)
        self._inode: int | None = None
        self._last_look: tuple[float, int] | None = None
        self._begin()

    def _begin(self) -> None:
        """Begin with the file from its start."""
        self._left_out = 0  # events that are only in summaries any more
        self._builder = _core.LineBuilder()
        self._records = 0  # taken in so far
        self._dropped = 0
        self._duration_ns = 0
        self._step = 0
        self._driver: int | None = None  # the thread that emits the steps
        self._marks: Counter[int] = Counter()
        self._phase_of_thread: dict[int, int] = {}
        self._used: dict[int, int] = {}
        self._highest: dict[int, dict[str, int]] = {}

    def look(self) -> LiveStatus:
        """Read what was added and return where the run is."""
        inode = self._path.stat().st_ino
        if inode != self._inode:
            self._begin()  # or a smaller one has taken its place: gpumemtrace.analysis.aged
        self._inode = inode
        file = TraceFile(self._path)
        ends = file.chunks["first_sequence"] + file.chunks["count"]
        first = int(np.searchsorted(ends, self._records, side="right"))
        for begin in range(first, len(ends), _CHUNKS_AT_ONCE):
            end = min(begin + _CHUNKS_AT_ONCE, len(ends))
            self._take(file.read(begin, end))
            self._records = int(ends[end - 1])
        return self._status(file)

    def _take(self, raw: Columns) -> None:
        count = len(raw["kind"])
        if not count:
            return
        lines = self._builder.feed(raw | {"size_bytes": raw["size_bytes"].view(np.int64)})
        for device in lines["devices"]:
            mine = lines["device"] == device
            self._raise(device, {name: int(lines[name][mine].max()) for name in ALLOCATOR_LINES})
        kind = raw["kind"]
        samples = np.flatnonzero(kind == Kind.DEVICE_USED)
        for device in np.unique(raw["device"][samples]).tolist():
            used = raw["size_bytes"][samples[raw["device"][samples] == device]]
            self._used[device] = int(used[-1])
            self._raise(device, {"device_used": int(used.max())})
        steps = np.flatnonzero(kind == Kind.STEP)
        if len(steps):
            self._step = int(raw["size_bytes"][steps[-1]].astype(np.int64))
            self._driver = int(raw["thread"][steps[-1]])
        for row in np.flatnonzero(kind == Kind.PHASE).tolist():
            thread = int(raw["thread"][row])
            self._phase_of_thread[thread] = int(raw["size_bytes"][row])
            self._marks[thread] += 1
        aged = kind == Kind.AGED
        self._left_out += int(raw["address"][aged].sum() + raw["stream"][aged].sum())
        self._dropped += int(raw["address"][kind == Kind.GAP].sum())
        self._duration_ns = max(self._duration_ns, int(raw["time_ns"].max()))

    def _raise(self, device: int, values: dict[str, int]) -> None:
        highest = self._highest.setdefault(device, {})
        for name, value in values.items():
            highest[name] = max(highest.get(name, 0), value)

    def _status(self, file: TraceFile) -> LiveStatus:
        now, events = time.monotonic(), self._builder.events + self._left_out
        rate = None
        if self._last_look is not None and now > self._last_look[0]:
            rate = (events - self._last_look[1]) / (now - self._last_look[0])
        self._last_look = now, events
        thread = self._driver
        if thread is None and self._marks:
            thread = self._marks.most_common(1)[0][0]
        names = PhaseNames(file.names.phases)
        path_id = np.array([self._phase_of_thread.get(thread or 0, 0)], np.int32)
        phase = int(names.path_of_id(path_id)[0])
        return LiveStatus(
            path=str(self._path),
            events=events,
            events_per_s=rate,
            dropped_events=self._dropped,
            duration_s=self._duration_ns / 1e9,
            file_bytes=file.size_bytes,
            age_s=max(time.time() - self._path.stat().st_mtime, 0.0),
            is_closed=file.complete,
            is_over=file.complete or not _may_be_written(file.run_record),
            step=self._step,
            phase=names.paths[phase] if phase >= 0 else (),
            devices=tuple(self._device(file, number) for number in sorted(self._highest)),
        )

    def _device(self, file: TraceFile, number: int) -> LiveDevice:
        state = self._builder.devices.get(number, {})
        known = ALLOCATOR_LINES if state.get("has_stats") else ALLOCATOR_LINES[:2]
        values = {name: state.get(name, 0) for name in known}
        if number in self._used:
            values["device_used"] = self._used[number]
        peak = {name: self._highest[number].get(name, 0) for name in values}
        return LiveDevice(number, device_facts(file.run_record, number), values, peak)


def _may_be_written(run_record: Mapping[str, Any]) -> bool:
    pid, host = run_record.get("pid"), run_record.get("host")
    if not isinstance(pid, int):
        return False  # no recorder's file
    return host != socket.gethostname() or Path(f"/proc/{pid}").exists()
