"""What each phase of each step changed: allocated, reserved, the host's memory, the device's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.lines import Lines, feed_lines
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["DevicePhaseChanges", "PhaseChanges", "PhaseChangesFinder", "find_phase_changes"]

_LINES = ("allocated", "reserved")


@dataclass(frozen=True)
class DevicePhaseChanges:
    """One device; int64 arrays (steps, phases + 1), the last column is for no phase.

    ``allocated_bytes``, ``reserved_bytes``: after less before, over the events of the phase;
    ``device_used_bytes``: the highest sample of the whole device taken in it, -1 = none.
    """

    device: int
    allocated_bytes: npt.NDArray[np.int64]
    reserved_bytes: npt.NDArray[np.int64]
    device_used_bytes: npt.NDArray[np.int64]


@dataclass(frozen=True)
class PhaseChanges:
    """The steps of a trace, the unfinished one too.

    ``number``: int64, steps; ``count``: int64, how many a row stands for, see
    `gpumemtrace.marks.Steps`: of several told as one no phases are known; ``is_complete``: bool,
    which of them ended; ``merged_steps``: those left out here because they are told as one;
    ``phases``: innermost names. ``host_bytes``: float64 (steps, phases + 1), the change of the
    process's resident memory, between samples by straight lines; None where it was not sampled.
    """

    number: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]
    is_complete: npt.NDArray[np.bool_]
    phases: tuple[str, ...]
    devices: tuple[DevicePhaseChanges, ...]
    host_bytes: npt.NDArray[np.float64] | None
    merged_steps: int = 0

    @property
    def complete(self) -> PhaseChanges:
        """The steps that ended, of which means can be told; all of them where none did."""
        is_single = self.count == 1
        kept = self.is_complete & is_single
        if not kept.any():
            return self
        return PhaseChanges(
            number=self.number[kept],
            count=self.count[kept],
            merged_steps=int(self.count[~is_single].sum()),
            is_complete=kept[kept],
            phases=self.phases,
            devices=tuple(
                DevicePhaseChanges(
                    device.device,
                    device.allocated_bytes[kept],
                    device.reserved_bytes[kept],
                    device.device_used_bytes[kept],
                )
                for device in self.devices
            ),
            host_bytes=None if self.host_bytes is None else self.host_bytes[kept],
        )

    def to_dict(self) -> dict[str, Any]:
        """Return, as JSON-like values, the mean over these steps of each phase."""
        names = [*self.phases, None]
        host = None if self.host_bytes is None else self.host_bytes.mean(axis=0)
        return {
            "steps": len(self.number),
            "merged_steps": self.merged_steps,
            "from_step": int(self.number[0]) if len(self.number) else None,
            "to_step": int(self.number[-1]) if len(self.number) else None,
            "devices": [
                {
                    "device": device.device,
                    "phases": [
                        {
                            "name": name,
                            "allocated_bytes": float(device.allocated_bytes[:, i].mean()),
                            "reserved_bytes": float(device.reserved_bytes[:, i].mean()),
                            "device_used_bytes": _highest(device.device_used_bytes[:, i]),
                            "host_bytes": None if host is None else float(host[i]),
                        }
                        for i, name in enumerate(names)
                    ],
                }
                for device in self.devices
                if len(self.number)
            ],
        }


def find_phase_changes(trace: TraceData, *, steps: tuple[int, int] | None = None) -> PhaseChanges:
    """Return what each phase changed in each step, in one pass.

    ``steps``: from the first to before the second; by default all. Events belong to the phase of
    their thread, the host's memory to that of the driving thread.
    """
    finder = PhaseChangesFinder(trace)
    feed_lines(trace, finder)
    return finder.finish(steps=steps)


class PhaseChangesFinder:
    """Adds changes up as batches go by; see `find_phase_changes`."""

    def __init__(self, trace: TraceData) -> None:
        """Prepare for one pass over ``trace``."""
        self._trace = trace
        self._width = len(trace.phase_names) + 1
        self._last: dict[int, npt.NDArray[np.int64]] = {}
        self._changes: dict[int, list[npt.NDArray[np.int64]]] = {}
        self._used: dict[int, list[npt.NDArray[np.int64]]] = {}
        self._host: list[npt.NDArray[np.int64]] = []

    def begin(self, initial: dict[int, dict[str, int]]) -> None:
        """Take the lines as they are before the first record."""
        for device, lines in initial.items():
            self._last[device] = np.array([lines[name] for name in _LINES], np.int64)

    def feed(self, batch: Batch, lines: Lines) -> None:
        """Take the next batch."""
        raw = batch.raw
        hosts = batch.rows_of(Kind.HOST_USED)
        samples = [raw["time_ns"][hosts], raw["address"][hosts].astype(np.int64)]
        self._host.append(np.stack(samples, axis=1))
        sampled = raw["device"][batch.rows_of(Kind.DEVICE_USED)].tolist()
        for number in {*lines.devices, *sampled} - {-1}:
            points = lines.points(number)
            if len(points.used_rows):
                key = self._key(batch, points.used_rows)
                self._used.setdefault(number, []).append(np.stack([key, points.used], axis=1))
            if not len(points.rows):
                continue
            key = self._key(batch, points.rows)
            # Phases last for many records: the change over each run of one is enough.
            ends = np.append(np.flatnonzero(np.diff(key)), len(key) - 1)
            values = np.stack([points.values[name][ends] for name in _LINES], axis=1)
            before = self._last.get(number, np.zeros(len(_LINES), np.int64))
            change = np.diff(values, axis=0, prepend=before[None])
            self._last[number] = values[-1]
            rows = np.concatenate([key[ends][:, None], change], axis=1)
            self._changes.setdefault(number, []).append(rows)

    def finish(self, *, steps: tuple[int, int] | None = None) -> PhaseChanges:
        """Return what was found, of steps ``steps[0]`` to before ``steps[1]``."""
        trace = self._trace
        numbers = np.unique(
            np.concatenate(
                [rows[:, 0] // self._width for part in self._changes.values() for rows in part]
                + [trace.steps.number]
            )
        )
        if steps is not None:
            numbers = numbers[(numbers >= steps[0]) & (numbers < steps[1])]
        return PhaseChanges(
            number=numbers,
            count=trace.marks.counts_of(numbers),
            is_complete=np.isin(numbers, trace.steps.number),
            phases=trace.phase_names,
            devices=tuple(
                self._of_device(device, numbers) for device in sorted({*self._changes, *self._used})
            ),
            host_bytes=self._host_changes(numbers),
        )

    def _key(self, batch: Batch, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        """Step and phase of records as one number; no phase is the last one."""
        return batch.step[rows] * self._width + batch.phase[rows] % self._width

    def _of_device(self, device: int, numbers: npt.NDArray[np.int64]) -> DevicePhaseChanges:
        changes = np.zeros((len(_LINES), len(numbers), self._width), np.int64)
        for rows in self._changes.get(device, []):
            place, column, is_inside = self._places(rows[:, 0], numbers)
            for i in range(len(_LINES)):
                np.add.at(changes[i], (place, column), rows[is_inside, 1 + i])
        used = np.full((len(numbers), self._width), -1, np.int64)
        for rows in self._used.get(device, []):
            place, column, is_inside = self._places(rows[:, 0], numbers)
            np.maximum.at(used, (place, column), rows[is_inside, 1])
        return DevicePhaseChanges(device, changes[0], changes[1], used)

    def _places(
        self, key: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        step = key // self._width
        is_inside = np.isin(step, numbers)
        return np.searchsorted(numbers, step[is_inside]), key[is_inside] % self._width, is_inside

    def _host_changes(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64] | None:
        samples = np.concatenate([*self._host, np.zeros((0, 2), np.int64)])
        if len(samples) < 2:
            return None
        trace = self._trace
        steps, spans = trace.steps, trace.phases
        result = np.zeros((len(numbers), self._width))
        mine = (spans.thread == trace.driving_thread) & (spans.end_ns > spans.start_ns)
        names = {name: i for i, name in enumerate(trace.phase_names)}
        leaf = np.array([names[path[-1]] for path in spans.paths], np.int64)
        begin, end, path = spans.start_ns[mine], spans.end_ns[mine], spans.path[mine]
        # Between two neighbouring cuts there is one step (or none) and one phase (or none).
        cuts = np.unique(np.concatenate([steps.start_ns, steps.end_ns, begin, end]))
        at = cuts[:-1]
        change = np.diff(np.interp(cuts, samples[:, 0], samples[:, 1].astype(np.float64)))
        step = np.searchsorted(steps.start_ns, at, side="right") - 1
        is_inside = (step >= 0) & (at < steps.end_ns[step]) if len(steps) else at < at
        is_inside[is_inside] = np.isin(steps.number[step[is_inside]], numbers)
        phase = np.full(len(at), self._width - 1)
        if len(begin):
            span = np.searchsorted(begin, at, side="right") - 1
            is_open = (span >= 0) & (at < end[span])
            phase[is_open] = leaf[path[span[is_open]]]
        place = np.searchsorted(numbers, steps.number[step[is_inside]])
        np.add.at(result, (place, phase[is_inside]), change[is_inside])
        return result


def _highest(used: npt.NDArray[np.int64]) -> int | None:
    highest = int(used.max())
    return highest if highest >= 0 else None
