"""What the timeline figure shows: lines at picture width, phases, steps, and what went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.analysis.aged import AgedParts, find_aged
from gpumemtrace.analysis.driver_time import Flush, find_flushes
from gpumemtrace.analysis.endings import find_failures
from gpumemtrace.analysis.facts import (
    DeviceFacts,
    FlightRecording,
    Simulated,
    device_facts,
    flight_recording,
    simulated_run,
)
from gpumemtrace.analysis.lines import (
    ALLOCATOR_LINES,
    LINES,
    Lines,
    LineStream,
    feed_lines,
    known_lines,
)
from gpumemtrace.analysis.peaks import DevicePeaks, Peak, PeakFinder
from gpumemtrace.analysis.phase_bands import PhaseBands, find_phase_bands
from gpumemtrace.records import Batch, Records
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["DeviceTimeline", "Timeline", "TimelineBuilder", "build_timeline"]

_NOT_YET = -1  # before the first sample


@dataclass(frozen=True)
class DeviceTimeline:
    """One device.

    ``lines``: name -> int64 array (columns, 4): first, lowest, highest and last bytes in each
    column of the picture (M4: no peak is lost), only lines that are known; -1 = not sampled yet.
    ``peak``: of allocated bytes, None without events. ``out_of_memory``: requests that could not be
    served; ``flushes``: when the cache went back to the driver. ``uncertain_ns``: int64 array
    (n, 2), from lost events to the next reading of counters.
    """

    device: int
    facts: DeviceFacts
    lines: dict[str, npt.NDArray[np.int64]]
    peak: Peak | None
    out_of_memory: tuple[Peak, ...]
    flushes: tuple[Flush, ...]
    uncertain_ns: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Timeline:
    """See `build_timeline`. Times are nanoseconds since the trace began.

    ``step_start_ns``: where step ``step_number`` begins; the last one may be unfinished.
    ``gaps``: (time, events lost). ``aged``: steps of which only the peak of each phase is known.
    ``notes``: (time, text) of the user's marks.
    ``shown_records`` of ``all_records``: in a slice, how much of the whole it is.
    """

    path: str | None
    simulated: Simulated | None
    flight: FlightRecording | None
    start_ns: int
    end_ns: int
    devices: tuple[DeviceTimeline, ...]
    phases: PhaseBands
    step_number: npt.NDArray[np.int64]
    step_start_ns: npt.NDArray[np.int64]
    completed_steps: int
    gaps: tuple[tuple[int, int], ...]
    aged: AgedParts
    notes: tuple[tuple[int, str], ...]
    shown_records: int
    all_records: int


def build_timeline(
    trace: TraceData, *, devices: Sequence[int] | None = None, columns: int = 2000
) -> Timeline:
    """Prepare the timeline in one pass over the trace.

    ``devices``: those to show, by default all that have events; one without events is shown as
    such. ``columns``: the width of the picture in points.
    """
    peaks = PeakFinder(trace)
    builder = TimelineBuilder(trace, columns=columns)
    stream = feed_lines(trace, peaks, builder)
    return builder.finish(stream, peaks.finish(stream), devices=devices)


@dataclass
class _Samplers:
    """The lines of one device at picture width, so far."""

    lines: dict[str, _core.Downsampler]
    uncertain_since: int | None = None
    uncertain: list[tuple[int, int]] = field(default_factory=list)
    has_samples: bool = False


class TimelineBuilder:
    """Downsamples every line as batches go by; see `build_timeline`."""

    def __init__(self, trace: TraceData, *, columns: int) -> None:
        """Prepare for one pass over ``trace``."""
        if columns < 1:
            raise ValueError(f"columns must be at least 1, not {columns}")
        start_ns, end_ns = trace.time_span_ns
        self._trace = trace
        self._start_ns, self._end_ns, self._columns = start_ns, max(start_ns, end_ns), columns
        self._devices: dict[int, _Samplers] = {}
        self._initial: dict[int, dict[str, int]] = {}

    def begin(self, initial: dict[int, dict[str, int]]) -> None:
        """Take the lines as they are before the first record."""
        self._initial = initial
        for device in initial:
            self._samplers(device)

    def feed(self, batch: Batch, lines: Lines) -> None:
        """Take the next batch."""
        raw = batch.raw
        sampled = raw["device"][batch.rows_of(Kind.DEVICE_USED)].tolist()
        for device in {*lines.devices, *sampled} - {-1}:
            samplers = self._samplers(device)
            points = lines.points(device)
            for name in ALLOCATOR_LINES:
                values = lines.values[name]
                samplers.lines[name].feed(raw["time_ns"], values, lines.device, device)
            rows = points.used_rows
            samplers.lines["device_used"].feed(
                raw["time_ns"][rows], points.used, raw["device"][rows], device
            )
            samplers.has_samples |= len(rows) > 0
            self._note_uncertain(samplers, raw["time_ns"], lines.uncertain, points.rows)

    def finish(
        self,
        stream: LineStream,
        peaks: Sequence[DevicePeaks],
        *,
        devices: Sequence[int] | None = None,
    ) -> Timeline:
        """Return what was found in the pass of ``stream``, with the ``peaks`` of the same pass."""
        trace = self._trace
        peak_of = {found.device: found.lines["allocated"] for found in peaks}
        with_events = set(trace.active_devices)
        shown = sorted(with_events) if devices is None else list(devices)
        marks = trace.records(Kind.MARK)
        gaps = trace.records(Kind.GAP)
        flushes = find_flushes(trace)
        number, step_start_ns = _step_starts(trace)
        return Timeline(
            path=trace.path,
            simulated=simulated_run(trace.run_record),
            flight=flight_recording(trace.run_record),
            start_ns=self._start_ns,
            end_ns=trace.time_span_ns[1],
            devices=tuple(
                DeviceTimeline(
                    device=device,
                    facts=device_facts(trace.run_record, device),
                    lines=self._lines_of(device, stream) if device in with_events else {},
                    peak=peak_of[device] if device in with_events else None,
                    out_of_memory=find_failures(trace, device),
                    flushes=tuple(f for f in flushes if f.device in (None, device)),
                    uncertain_ns=self._uncertain_of(device, gaps),
                )
                for device in shown
            ),
            phases=find_phase_bands(trace, columns=self._columns),
            step_number=number,
            step_start_ns=step_start_ns,
            completed_steps=trace.marks.ended_steps,
            gaps=tuple(zip(gaps["time_ns"].tolist(), gaps["address"].tolist(), strict=True)),
            aged=find_aged(trace),
            notes=tuple(
                (int(time), trace.text(int(id)))
                for time, id in zip(marks["time_ns"], marks["size_bytes"], strict=True)
            ),
            shown_records=trace.record_count,
            all_records=trace.whole_record_count,
        )

    def _lines_of(self, device: int, stream: LineStream) -> dict[str, npt.NDArray[np.int64]]:
        """Return the known lines of a device."""
        samplers = self._samplers(device)
        known = known_lines(stream, device, has_samples=samplers.has_samples)
        return {name: samplers.lines[name].finish() for name in LINES if name in known}

    def _uncertain_of(self, device: int, gaps: Records) -> npt.NDArray[np.int64]:
        """Return the stretches (start, end) in which the lines are uncertain.

        One begins where the first event of its gap was lost.
        """
        samplers = self._samplers(device)
        stretches = list(samplers.uncertain)
        if samplers.uncertain_since is not None:
            stretches.append((samplers.uncertain_since, self._end_ns))
        result = np.array(stretches, np.int64).reshape(-1, 2)
        lost_from = gaps["time_ns"] - gaps["extra"].astype(np.int64)
        before = self._start_ns
        for row in result:
            lost = lost_from[(gaps["time_ns"] > before) & (gaps["time_ns"] <= row[0])]
            row[0] = min([row[0], *np.maximum(lost, before)])
            before = row[1]
        return result

    def _samplers(self, device: int) -> _Samplers:
        if device not in self._devices:
            initial = self._initial.get(device, {}) | {"device_used": _NOT_YET}
            span = (self._start_ns, self._end_ns, self._columns)
            self._devices[device] = _Samplers(
                {name: _core.Downsampler(*span, initial.get(name, 0)) for name in LINES}
            )
        return self._devices[device]

    def _note_uncertain(
        self,
        samplers: _Samplers,
        time_ns: npt.NDArray[Any],
        uncertain: npt.NDArray[np.bool_],
        rows: npt.NDArray[np.intp],
    ) -> None:
        was = samplers.uncertain_since is not None
        if not was and not uncertain.any():
            return
        time_ns, uncertain = time_ns[rows], uncertain[rows]
        for i in np.flatnonzero(np.diff(uncertain, prepend=was)):
            if samplers.uncertain_since is None:
                samplers.uncertain_since = int(time_ns[i])
            else:
                samplers.uncertain.append((samplers.uncertain_since, int(time_ns[i])))
                samplers.uncertain_since = None


def _step_starts(trace: TraceData) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    marks = trace.records(Kind.STEP)
    number, start = marks["size_bytes"], marks["time_ns"]
    marks_of = trace.marks
    if len(trace.steps) and not marks_of.begins_at_step and not marks_of.begins_inside_step:
        number = np.concatenate([[0], number])
        start = np.concatenate([[trace.marks.first_ns], start])
    return number.astype(np.int64), start.astype(np.int64)
