"""The true peaks of the lines: of the run, and of each step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.lines import (
    ALLOCATOR_LINES,
    LINES,
    Lines,
    LineStream,
    feed_lines,
    known_lines,
)
from gpumemtrace.analysis.segment_max import SegmentMax
from gpumemtrace.marks import begins_at_step
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["DevicePeaks", "Peak", "PeakFinder", "StepLines", "find_peaks"]


@dataclass(frozen=True)
class Peak:
    """The highest value of a line, and the first record that reached it.

    ``event``: events of the trace before that record (for an alloc, its own number); ``phase``:
    the innermost phase, None outside of any.
    """

    size_bytes: int
    time_ns: int
    event: int
    step: int
    phase: str | None


@dataclass(frozen=True)
class StepLines:
    """Per step the peaks of the lines and their values at its end.

    ``number``: int64, steps in order of time, the unfinished last one too; ``peak`` and ``end``:
    line name -> int64 bytes of that length. A step's peak includes the value with which it begins.
    ``count``: int64, how many steps a row stands for, see `gpumemtrace.marks.Steps`.
    """

    number: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]
    peak: dict[str, npt.NDArray[np.int64]]
    end: dict[str, npt.NDArray[np.int64]]

    @property
    def is_single(self) -> npt.NDArray[np.bool_]:
        """Of each row, whether it is a completed step that is told by itself.

        Where none is, those that are told together; of a run in its first step, that one.
        """
        completed = np.arange(len(self.number)) < max(len(self.number) - 1, 1)
        single = completed & (self.count == 1)
        return single if single.any() else completed

    @property
    def median_peak_bytes(self) -> float:
        """The median of the allocated peaks of the rows that `is_single` names."""
        return float(np.median(self.peak["allocated"][self.is_single]))


@dataclass(frozen=True)
class DevicePeaks:
    """The peaks of one device; ``lines``: line name -> peak, None where a line is not known."""

    device: int
    lines: dict[str, Peak | None]
    steps: StepLines


def find_peaks(trace: TraceData) -> tuple[DevicePeaks, ...]:
    """Return the peaks of every device that has events or counters."""
    finder = PeakFinder(trace)
    return finder.finish(feed_lines(trace, finder))


@dataclass
class _Highest:
    """The highest value so far."""

    value: int
    time_ns: int = 0
    event: int = 0
    step: int = 0
    phase: int = -1
    found: bool = False


@dataclass
class _Device:
    """What is known so far of one device."""

    highest: dict[str, _Highest]
    segments: SegmentMax
    used_segments: SegmentMax
    has_samples: bool = False
    peaks: list[npt.NDArray[np.int64]] = field(default_factory=list)
    ends: list[npt.NDArray[np.int64]] = field(default_factory=list)


class PeakFinder:
    """Finds the peaks as batches go by; see `find_peaks`."""

    def __init__(self, trace: TraceData) -> None:
        """Prepare for one pass over ``trace``."""
        self._trace = trace
        self._devices: dict[int, _Device] = {}
        self._step_numbers: list[npt.NDArray[np.int64]] = []
        self._last_step = 0
        self._is_first = True

    def begin(self, initial: dict[int, dict[str, int]]) -> None:
        """Take the lines as they are before the first record."""
        for device, lines in initial.items():
            self._device(device, [lines[name] for name in ALLOCATOR_LINES])

    def feed(self, batch: Batch, lines: Lines) -> None:
        """Take the next batch."""
        raw = batch.raw
        cuts = batch.rows_of(Kind.STEP)
        if self._is_first:
            self._is_first = False
            self._last_step = int(batch.step[0])
            if begins_at_step(batch):
                cuts = cuts[1:]
        begun = batch.step[cuts]
        if len(cuts):
            self._step_numbers.append(np.concatenate([[self._last_step], begun[:-1]]))
            self._last_step = int(begun[-1])
        sampled = raw["device"][batch.rows_of(Kind.DEVICE_USED)]
        for number in {*lines.devices, *self._devices, *sampled.tolist()} - {-1}:
            device = self._device(number, [0] * len(ALLOCATOR_LINES))
            points = lines.points(number)
            device.has_samples |= len(points.used) > 0
            for name, line in points.values.items():
                self._raise(device.highest[name], batch, points.rows, line)
            self._raise(device.highest["device_used"], batch, points.used_rows, points.used)
            peaks, ends = device.segments.feed(points.rows, list(points.values.values()), cuts)
            used_peaks, used_ends = device.used_segments.feed(points.used_rows, [points.used], cuts)
            device.peaks.append(np.hstack([peaks, used_peaks]))
            device.ends.append(np.hstack([ends, used_ends]))

    def finish(self, stream: LineStream) -> tuple[DevicePeaks, ...]:
        """Return what was found in the pass of ``stream``."""
        numbers = np.concatenate([*self._step_numbers, [self._last_step]]).astype(np.int64)
        counts = self._trace.marks.counts_of(numbers)
        result = []
        for number, device in sorted(self._devices.items()):
            open_peak = [*device.segments.running, *device.used_segments.running]
            open_end = [*device.segments.last, *device.used_segments.last]
            peaks = _padded(np.vstack([*device.peaks, open_peak]), len(numbers))
            ends = _padded(np.vstack([*device.ends, open_end]), len(numbers))
            known = known_lines(stream, number, has_samples=device.has_samples)
            result.append(
                DevicePeaks(
                    device=number,
                    lines={
                        name: self._as_peak(device.highest[name]) if name in known else None
                        for name in LINES
                    },
                    steps=StepLines(
                        number=numbers,
                        count=counts,
                        peak={n: peaks[:, i] for i, n in enumerate(LINES) if n in known},
                        end={n: ends[:, i] for i, n in enumerate(LINES) if n in known},
                    ),
                )
            )
        return tuple(result)

    def _device(self, number: int, initial: list[int]) -> _Device:
        if number not in self._devices:
            self._devices[number] = _Device(
                highest={
                    name: _Highest(value) for name, value in zip(LINES, [*initial, -1], strict=True)
                },
                segments=SegmentMax(initial),
                used_segments=SegmentMax([-1]),
            )
        return self._devices[number]

    def _raise(
        self,
        highest: _Highest,
        batch: Batch,
        rows: npt.NDArray[np.intp],
        values: npt.NDArray[np.int64],
    ) -> None:
        if not len(values):
            return
        i = int(np.argmax(values))
        if int(values[i]) > highest.value or not highest.found:
            row = int(rows[i])
            highest.value = max(highest.value, int(values[i]))
            highest.time_ns = int(batch.raw["time_ns"][row])
            highest.event = int(batch.events_before(rows[i : i + 1])[0])
            highest.step = int(batch.step[row])
            highest.phase = int(batch.phase[row])
            highest.found = True

    def _as_peak(self, highest: _Highest) -> Peak:
        phase = self._trace.phase_name(highest.phase)
        return Peak(highest.value, highest.time_ns, highest.event, highest.step, phase)


def _padded(rows: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Return ``rows`` with zeros in front, for the steps before the device had its first event."""
    missing = count - len(rows)
    return np.vstack([np.zeros((missing, rows.shape[1]), np.int64), rows])
