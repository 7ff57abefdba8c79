"""How high each phase went in each step: the peak of the allocated line as a series per phase."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.lines import Lines, feed_lines
from gpumemtrace.analysis.segment_max import SegmentMax
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["StepPhases", "StepPhasesFinder", "find_step_phases"]


@dataclass(frozen=True)
class StepPhases:
    """One device.

    ``number``: int64, the steps in which anything was allocated on the device, ascending; without
    those that a limit of disk space left several told as one, of which no phases are known;
    ``names``: the phases; ``peak_allocated_bytes``: int64 array (steps, names + 1), -1 where the
    phase was not open in the step, or nothing was allocated in it; the last column is for the time
    in which no phase was open. A phase counts where it was the innermost one open on the driving
    thread, whichever thread allocated; its peak includes the value with which it began.
    """

    device: int
    names: tuple[str, ...]
    number: npt.NDArray[np.int64]
    peak_allocated_bytes: npt.NDArray[np.int64]

    @property
    def highest(self) -> tuple[int, int, str | None] | None:
        """Bytes, step and phase (None outside of any) of the highest peak; None without one."""
        if not self.peak_allocated_bytes.size:
            return None
        peaks = self.peak_allocated_bytes
        row, phase = np.unravel_index(int(peaks.argmax()), peaks.shape)
        name = self.names[phase] if phase < len(self.names) else None
        return int(peaks[row, phase]), int(self.number[row]), name

    def steps_set_by(self, phase: str | None) -> int:
        """Return in how many steps the phase (None: no phase) is as high as the step gets."""
        column = len(self.names) if phase is None else self.names.index(phase)
        peaks = self.peak_allocated_bytes
        return int(np.count_nonzero(peaks[:, column] == peaks.max(axis=1, initial=-1)))

    def rows(self, chosen: npt.NDArray[np.int64]) -> StepPhases:
        """Return the same with some of the steps, by their rows."""
        return replace(
            self,
            number=self.number[chosen],
            peak_allocated_bytes=self.peak_allocated_bytes[chosen],
        )


def find_step_phases(trace: TraceData) -> tuple[StepPhases, ...]:
    """Return the peaks per step and phase of every device that has events or counters."""
    finder = StepPhasesFinder(trace)
    feed_lines(trace, finder)
    return finder.finish()


@dataclass
class _Device:
    """The stretches that are closed so far: owner (see `StepPhasesFinder`) and peak of each."""

    segments: SegmentMax
    owners: list[npt.NDArray[np.int64]] = field(default_factory=list)
    peaks: list[npt.NDArray[np.int64]] = field(default_factory=list)


class StepPhasesFinder:
    """Finds them as batches go by; see `find_step_phases`.

    A stretch lies between two marks; its owner is ``step * (phases + 1) + phase``.
    """

    def __init__(self, trace: TraceData) -> None:
        """Prepare for one pass over ``trace``."""
        self._trace = trace
        self._width = len(trace.phase_names) + 1
        self._devices: dict[int, _Device] = {}
        self._owner: int | None = None
        self._phase = -1

    def begin(self, initial: dict[int, dict[str, int]]) -> None:
        """Take the lines as they are before the first record."""
        for device, lines in initial.items():
            self._device(device, lines["allocated"])

    def feed(self, batch: Batch, lines: Lines) -> None:
        """Take the next batch."""
        steps, marks = batch.rows_of(Kind.STEP), batch.rows_of(Kind.PHASE)
        marks = marks[batch.raw["thread"][marks] == self._trace.driving_thread]
        cuts = np.sort(np.concatenate([steps, marks]))
        phase = self._phases_after(batch, marks, cuts)
        if self._owner is None:
            self._owner = self._owner_of(int(batch.step[0]), -1)
        owners = np.concatenate(
            [[self._owner], batch.step[cuts] * self._width + phase % self._width]
        )
        for number in {*lines.devices, *self._devices} - {-1}:
            device = self._device(number, 0)
            points = lines.points(number)
            peaks, _ = device.segments.feed(points.rows, [points.values["allocated"]], cuts)
            device.owners.append(owners[:-1])
            device.peaks.append(peaks[:, 0])
        self._owner = int(owners[-1])
        if len(phase):
            self._phase = int(phase[-1])

    def finish(self) -> tuple[StepPhases, ...]:
        """Return what was found."""
        return tuple(self._of_device(n, device) for n, device in sorted(self._devices.items()))

    def _phases_after(
        self, batch: Batch, marks: npt.NDArray[np.intp], cuts: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.int64]:
        """Return the driving thread's phase from each cut on; -1 = none."""
        path = self._trace.path_of_id(batch.raw["size_bytes"][marks])
        index = {name: i for i, name in enumerate(self._trace.phase_names)}
        leaf = [*(index[names[-1]] for names in self._trace.phase_paths), -1]
        known = np.concatenate([[self._phase], np.array(leaf, np.int64)[path]])
        return known[np.searchsorted(marks, cuts, side="right")]

    def _owner_of(self, step: int, phase: int) -> int:
        return step * self._width + phase % self._width

    def _device(self, number: int, initial: int) -> _Device:
        if number not in self._devices:
            self._devices[number] = _Device(SegmentMax([initial]))
        return self._devices[number]

    def _of_device(self, number: int, device: _Device) -> StepPhases:
        last = [] if self._owner is None else [self._owner]
        owners = np.concatenate([*device.owners, last]).astype(np.int64)
        peaks = np.concatenate([*device.peaks, device.segments.running[: len(last)]])
        steps, place = np.unique(owners // self._width, return_inverse=True)
        highest = np.full((len(steps), self._width), -1, np.int64)
        np.maximum.at(highest, (place, owners % self._width), peaks)
        highest[highest == 0] = -1
        in_use = (highest > 0).any(axis=1) & (self._trace.marks.counts_of(steps) == 1)
        return StepPhases(number, self._trace.phase_names, steps[in_use], highest[in_use])
