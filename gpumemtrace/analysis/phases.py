"""What each phase did: how often, how long, how high the lines went, what it left behind."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.lines import (
    ALLOCATOR_LINES,
    LINES,
    DevicePoints,
    Lines,
    LineStream,
    feed_lines,
    known_lines,
)
from gpumemtrace.analysis.segment_max import SegmentMax
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["DevicePhases", "PhaseFinder", "PhaseUse", "find_phases"]

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True)
class PhaseUse:
    """One phase on one device.

    ``peak`` (line name -> bytes, None = not known) is over all the time in which the phase was open
    on some thread, phases nested inside included, and so are ``time_s`` and
    ``net_allocated_bytes`` (allocated in it less freed in it). ``self_…`` counts only where it was
    the innermost phase. A peak includes the value with which the phase began: it equals what
    PyTorch's counters say when they are reset at its beginning and read at its end. Events belong
    to the phase of their thread, see `MarkResolver` in csrc/compute/marks.h.
    """

    path: tuple[str, ...]
    count: int
    time_s: float
    peak: dict[str, int | None]
    net_allocated_bytes: int
    self_time_s: float
    self_peak: dict[str, int | None]
    self_net_allocated_bytes: int

    @property
    def name(self) -> str:
        """The innermost name of the path."""
        return self.path[-1] if self.path else ""


@dataclass(frozen=True)
class DevicePhases:
    """The phases on one device.

    ``phases``: by name, wherever it was nested (its path is the name alone); ``paths``: by path.
    ``outside``: where the driving thread had no phase open.
    """

    device: int
    phases: tuple[PhaseUse, ...]
    paths: tuple[PhaseUse, ...]
    outside: PhaseUse


def find_phases(trace: TraceData) -> tuple[DevicePhases, ...]:
    """Return the phases of every device that has events or counters."""
    finder = PhaseFinder(trace)
    return finder.finish(feed_lines(trace, finder))


@dataclass
class _Device:
    """What is known so far of one device; arrays have a row per path, row 0 = no phase."""

    last: npt.NDArray[np.int64]  # the five lines, as of the end of the batch before
    peaks: npt.NDArray[np.int64]
    net: npt.NDArray[np.int64]
    owners: dict[int, tuple[SegmentMax, SegmentMax]] = field(default_factory=dict)
    has_samples: bool = False


class PhaseFinder:
    """Finds what each phase did as batches go by; see `find_phases`."""

    def __init__(self, trace: TraceData) -> None:
        """Prepare for one pass over ``trace``."""
        self._trace = trace
        self._paths = trace.phase_paths
        self._rows = _Rows(trace.phase_paths)
        self._devices: dict[int, _Device] = {}
        # Threads that have phases of their own -> path that is open, -1 = none.
        self._open = {trace.driving_thread: -1}

    def begin(self, initial: dict[int, dict[str, int]]) -> None:
        """Take the lines as they are before the first record."""
        for number, lines in initial.items():
            self._add_device(number, [lines[name] for name in ALLOCATOR_LINES])

    def feed(self, batch: Batch, lines: Lines) -> None:
        """Take the next batch."""
        raw = batch.raw
        marks = batch.rows_of(Kind.PHASE)
        marked_path = self._trace.path_of_id(raw["size_bytes"][marks])
        marked_thread = raw["thread"][marks]
        for thread in np.unique(marked_thread).tolist():
            self._open.setdefault(thread, -1)
        sampled = raw["device"][batch.rows_of(Kind.DEVICE_USED)].tolist()
        for number in {*lines.devices, *sampled} - {-1} - set(self._devices):
            self._add_device(number, [0] * len(ALLOCATOR_LINES))

        points = {number: lines.points(number) for number in self._devices}
        for thread in self._open:
            mine = marked_thread == thread
            cuts, path = marks[mine], marked_path[mine]
            closed = np.concatenate([[self._open[thread]], path[:-1]])[: len(path)].astype(int)
            for number, mine_of in points.items():
                device = self._devices[number]
                segments, used_segments = self._segments(device, thread)
                peaks, _ = segments.feed(mine_of.rows, list(mine_of.values.values()), cuts)
                used_peaks, _ = used_segments.feed(mine_of.used_rows, [mine_of.used], cuts)
                np.maximum.at(device.peaks, closed + 1, np.hstack([peaks, used_peaks]))
            if len(path):
                self._open[thread] = int(path[-1])
        for number, mine_of in points.items():
            self._add_changes(self._devices[number], batch, mine_of)

    def finish(self, stream: LineStream) -> tuple[DevicePhases, ...]:
        """Return what was found in the pass of ``stream``."""
        for device in self._devices.values():
            for thread, path in self._open.items():
                segments, used_segments = self._segments(device, thread)
                running = [*segments.running, *used_segments.running]
                np.maximum.at(device.peaks, np.array([path + 1]), [running])
        spans = _count_spans(self._trace)
        return tuple(
            self._of_device(
                number,
                device,
                known_lines(stream, number, has_samples=device.has_samples),
                spans,
            )
            for number, device in sorted(self._devices.items())
        )

    def _add_device(self, number: int, lines: list[int]) -> None:
        rows = len(self._paths) + 1
        self._devices[number] = _Device(
            last=np.array([*lines, -1], np.int64),
            peaks=np.full((rows, len(LINES)), _NEVER),
            net=np.zeros(rows, np.int64),
        )

    def _segments(self, device: _Device, thread: int) -> tuple[SegmentMax, SegmentMax]:
        """Return the maxima of a thread's segments, begun with the lines as they are."""
        if thread not in device.owners:
            device.owners[thread] = (SegmentMax(device.last[:-1]), SegmentMax(device.last[-1:]))
        return device.owners[thread]

    def _add_changes(self, device: _Device, batch: Batch, points: DevicePoints) -> None:
        """Add to each phase what its records changed, and remember the lines as they are now."""
        if len(points.rows):
            # Phases last for many records: the change over each run of one phase is enough.
            path = batch.phase_path[points.rows]
            allocated = points.values["allocated"]
            last = np.append(np.flatnonzero(path[1:] != path[:-1]), len(path) - 1)
            change = np.diff(allocated[last], prepend=device.last[1])
            np.add.at(device.net, path[last] + 1, change)
            device.last[:-1] = [line[-1] for line in points.values.values()]
        if len(points.used_rows):
            device.last[-1] = points.used[-1]
            device.has_samples = True

    def _of_device(
        self, number: int, device: _Device, known: set[str], spans: _Spans
    ) -> DevicePhases:
        def use(path: tuple[str, ...], mine: list[int], inside: list[int]) -> PhaseUse:
            return PhaseUse(
                path=path,
                count=int(spans.entries[mine].sum()),
                time_s=int(spans.time_ns[inside].sum()) / 1e9,
                peak=_highest(device.peaks[inside], known),
                net_allocated_bytes=int(device.net[inside].sum()),
                self_time_s=int(spans.time_ns[mine].sum()) / 1e9,
                self_peak=_highest(device.peaks[mine], known),
                self_net_allocated_bytes=int(device.net[mine].sum()),
            )

        # Before the device had its first record, nothing was in use on it.
        device.peaks[:, :-1] = np.where(
            (spans.count > 0)[:, None], np.maximum(device.peaks[:, :-1], 0), device.peaks[:, :-1]
        )
        rows = self._rows
        return DevicePhases(
            device=number,
            phases=tuple(
                use((name,), rows.innermost[name], rows.inside_name[name])
                for name in self._trace.phase_names
            ),
            paths=tuple(
                use(path, [row], rows.inside_path[rows.row_of[path]])
                for row, path in enumerate(self._paths, start=1)
            ),
            outside=use((), [0], [0]),
        )


class _Rows:
    """Which rows (1 + index of a path) have a name innermost, or anywhere, or begin with a path."""

    def __init__(self, paths: tuple[tuple[str, ...], ...]) -> None:
        """Take the paths in the order of their rows; their parents need not be among them."""
        self.innermost: dict[str, list[int]] = {}
        self.inside_name: dict[str, list[int]] = {}
        self.inside_path: list[list[int]] = [[] for _ in range(len(paths) + 1)]
        self.row_of: dict[tuple[str, ...], int] = {}
        for row, path in enumerate(paths, start=1):
            self.row_of.setdefault(path, row)
        around = [0, *(self._around(path) for path in paths)]
        for row, path in enumerate(paths, start=1):
            self.innermost.setdefault(path[-1], []).append(row)
            for name in set(path):
                self.inside_name.setdefault(name, []).append(row)
            ancestor = self.row_of[path]
            while ancestor:
                self.inside_path[ancestor].append(row)
                ancestor = around[ancestor]

    def _around(self, path: tuple[str, ...]) -> int:
        """Return the row of the innermost path around this one, 0 = there is none."""
        for length in range(len(path) - 1, 0, -1):
            if (row := self.row_of.get(path[:length])) is not None:
                return row
        return 0


@dataclass(frozen=True)
class _Spans:
    """Per path (row 0 = outside of any): spans, entries, nanoseconds."""

    count: npt.NDArray[np.int64]
    entries: npt.NDArray[np.int64]
    time_ns: npt.NDArray[np.int64]


def _count_spans(trace: TraceData) -> _Spans:
    spans = trace.phases
    count, entries, time_ns = np.zeros((3, len(trace.phase_paths) + 1), np.int64)
    np.add.at(count, spans.path + 1, 1)
    np.add.at(entries, spans.path[spans.entered] + 1, 1)
    np.add.at(time_ns, spans.path + 1, spans.end_ns - spans.start_ns)
    driving = spans.thread == trace.driving_thread
    inside_ns = int((spans.end_ns[driving] - spans.start_ns[driving]).sum())
    time_ns[0] = trace.duration_ns - inside_ns
    return _Spans(count, entries, time_ns)


def _highest(peaks: npt.NDArray[np.int64], known: set[str]) -> dict[str, int | None]:
    highest = peaks.max(axis=0)
    return {
        name: int(highest[i]) if name in known and highest[i] >= 0 else None
        for i, name in enumerate(LINES)
    }
