"""The run on one screen: peaks of the lines, what each phase did, what was lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpumemtrace.analysis.check import CheckResult, judge
from gpumemtrace.analysis.endings import ErrorAtEnd, find_error, find_failures
from gpumemtrace.analysis.facts import (
    DeviceFacts,
    Simulated,
    device_facts,
    flight_recording,
    simulated_run,
)
from gpumemtrace.analysis.lines import LINES, LineConsumer, LineStream, feed_lines
from gpumemtrace.analysis.peaks import DevicePeaks, Peak, PeakFinder
from gpumemtrace.analysis.phases import DevicePhases, PhaseFinder, PhaseUse
from gpumemtrace.analysis.recorder_cost import CostFinder, RecorderCost
from gpumemtrace.html_tables import html_table
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData
from gpumemtrace.units import format_bytes, format_duration

__all__ = ["DeviceSummary", "Summary", "SummaryBuilder", "summarize"]


@dataclass(frozen=True)
class DeviceSummary:
    """One device: its peaks, what its phases did, requests that it could not serve."""

    device: int
    facts: DeviceFacts
    peaks: DevicePeaks
    phases: DevicePhases
    out_of_memory: tuple[Peak, ...]
    retries: int

    @property
    def highest(self) -> Peak:
        """The peak that says where memory ran highest: of allocated bytes."""
        peak = self.peaks.lines["allocated"]
        assert peak is not None
        return peak


@dataclass(frozen=True)
class Summary:
    """See `summarize`. ``error``: with which the program ended, None for none that is known.

    ``to_dict()`` is what ``gpumemtrace summary --json`` prints.
    """

    path: str | None
    format_version: str
    complete: bool
    events: int
    dropped_events: int
    file_bytes: int
    duration_s: float
    steps: int
    simulated: Simulated | None
    devices: tuple[DeviceSummary, ...]
    check: CheckResult
    run_record: Mapping[str, Any]
    overhead: RecorderCost
    error: ErrorAtEnd | None

    def _repr_html_(self) -> str:
        """Show itself in a notebook: the peaks of the lines."""
        title = f"{self.steps:,} steps, {format_duration(self.duration_s)}, {self.events:,} events"
        rows = [
            (
                f"{name.replace('_', ' ')} on cuda:{device.device}",
                "not known" if peak is None else format_bytes(peak.size_bytes),
                "" if peak is None else peak.phase or "",
                "" if peak is None else f"{peak.step:,}",
                "" if peak is None else format_duration(peak.time_ns / 1e9),
            )
            for device in self.devices
            for name, peak in device.peaks.lines.items()
        ]
        return html_table(title, ["line", "peak", "phase", "step", "at"], rows)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values. Keys are added by later versions, none goes away."""
        flight = flight_recording(self.run_record)
        top = max(self.devices, key=lambda d: d.highest.size_bytes, default=None)
        return {
            "trace": {
                "path": self.path,
                "format_version": self.format_version,
                "complete": self.complete,
                "events": self.events,
                "dropped_events": self.dropped_events,
                "aged": self.check.aged.to_dict(),
                "file_bytes": self.file_bytes,
                "duration_s": self.duration_s,
                "steps": self.steps,
                "simulated": None
                if self.simulated is None
                else {
                    "gpu": self.simulated.gpu,
                    "approximations": list(self.simulated.approximations),
                },
                "flight_recorder": None if flight is None else flight.to_dict(),
                "verdict": self.check.verdict,
                "error": None if self.error is None else self.error.to_dict(),
            },
            "devices": [_device_dict(device) for device in self.devices],
            "peak": None if top is None else _peak_dict(top.highest) | {"device": top.device},
            "problems": [
                {"kind": d.kind, "message": d.message, "event": d.event, "offset": d.offset}
                for d in self.check.diagnostics
            ],
            "run_record": dict(self.run_record),
            "overhead": self.overhead.to_dict(),
        }


def summarize(trace: TraceData) -> Summary:
    """Summarise a trace in one pass over it."""
    builder = SummaryBuilder(trace)
    return builder.finish(feed_lines(trace, *builder.consumers))


class SummaryBuilder:
    """Summarises as batches go by; see `summarize`.

    ``consumers`` are what has to be fed: for a pass that other analyses share.
    """

    def __init__(self, trace: TraceData) -> None:
        """Prepare for one pass over ``trace``."""
        self._trace = trace
        self._peaks, self._phases = PeakFinder(trace), PhaseFinder(trace)
        self._cost = CostFinder(trace)
        self.consumers: tuple[LineConsumer, ...] = (self._peaks, self._phases, self._cost)

    def finish(self, stream: LineStream) -> Summary:
        """Return what was found in the pass of ``stream``."""
        trace = self._trace
        return Summary(
            path=trace.path,
            format_version=trace.format_version,
            complete=trace.complete,
            events=len(trace),
            dropped_events=trace.dropped_events,
            file_bytes=trace.file_bytes,
            duration_s=trace.duration_ns / 1e9,
            steps=trace.steps.total,
            simulated=simulated_run(trace.run_record),
            devices=_devices(trace, stream, self._peaks, self._phases),
            check=judge(trace, stream),
            run_record=trace.run_record,
            overhead=self._cost.finish(),
            error=find_error(trace),
        )


def _devices(
    trace: TraceData, stream: LineStream, peaks: PeakFinder, phases: PhaseFinder
) -> tuple[DeviceSummary, ...]:
    phases_of = {found.device: found for found in phases.finish(stream)}
    retried = trace.records(Kind.RETRY)["device"]
    return tuple(
        DeviceSummary(
            device=found.device,
            facts=device_facts(trace.run_record, found.device),
            peaks=found,
            phases=phases_of[found.device],
            out_of_memory=find_failures(trace, found.device),
            retries=int(np.count_nonzero(retried == found.device)),
        )
        for found in peaks.finish(stream)
    )


def _device_dict(device: DeviceSummary) -> dict[str, Any]:
    lines = device.peaks.lines
    steps = device.peaks.steps
    return {
        "device": device.device,
        "name": device.facts.name,
        "capacity_bytes": device.facts.capacity_bytes,
        "peak_bytes": {
            name: None if (peak := lines[name]) is None else peak.size_bytes for name in LINES
        },
        "peaks": {
            name: None if (peak := lines[name]) is None else _peak_dict(peak) for name in LINES
        },
        "phases": [_phase_dict(use) for use in device.phases.phases],
        "phase_paths": [{"path": list(use.path)} | _phase_dict(use) for use in device.phases.paths],
        "outside_phases": _phase_dict(device.phases.outside),
        "steps": {
            "peak_allocated_bytes": {
                "first": int(steps.peak["allocated"][0]),
                "median": steps.median_peak_bytes,
                "max": int(steps.peak["allocated"].max()),
            },
            "end_allocated_bytes": {
                "first": int(steps.end["allocated"][0]),
                "last": int(steps.end["allocated"][-1]),
            },
        },
        "ooms": [
            {"requested_bytes": failure.size_bytes} | _place_dict(failure)
            for failure in device.out_of_memory
        ],
        "retries": device.retries,
    }


def _phase_dict(use: PhaseUse) -> dict[str, Any]:
    return {
        "name": use.name,
        "count": use.count,
        "time_s": use.time_s,
        "peak_allocated_bytes": use.peak["allocated"],
        "peak_reserved_bytes": use.peak["reserved"],
        "net_allocated_bytes": use.net_allocated_bytes,
        "self_time_s": use.self_time_s,
        "self_peak_allocated_bytes": use.self_peak["allocated"],
        "self_net_allocated_bytes": use.self_net_allocated_bytes,
    }


def _peak_dict(peak: Peak) -> dict[str, Any]:
    return {"bytes": peak.size_bytes} | _place_dict(peak)


def _place_dict(peak: Peak) -> dict[str, Any]:
    return {
        "time_s": peak.time_ns / 1e9,
        "step": peak.step,
        "phase": peak.phase,
        "event": peak.event,
    }
