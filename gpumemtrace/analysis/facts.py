"""What the run record says of the run and its devices, for several results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpumemtrace.analysis.aged import AgedParts, find_aged
from gpumemtrace.trace_data import TraceData

__all__ = [
    "DeviceFacts",
    "FlightRecording",
    "Simulated",
    "TraceFacts",
    "device_facts",
    "flight_recording",
    "simulated_run",
    "trace_facts",
    "uses_expandable_segments",
    "world_size",
]


@dataclass(frozen=True)
class DeviceFacts:
    """A device as the run record has it; None where it does not say."""

    name: str | None = None
    capacity_bytes: int | None = None


@dataclass(frozen=True)
class Simulated:
    """The run had no GPU: which one it pretended to have, and where it could not be exact."""

    gpu: str
    approximations: tuple[Any, ...]

    @property
    def card(self) -> str:
        """The name to follow the word *simulated*, which a card of one's own has in its name."""
        return self.gpu.removeprefix("Simulated ")


@dataclass(frozen=True)
class FlightRecording:
    """The trace is the end of a recording whose beginning was not kept.

    ``trigger``: what made the recorder write it (``end``, ``oom``, ``dump``, ``sigusr2``, or the
    signal that ended the process). ``window_s``: what it was told to keep. Of the time before: its
    ``events_before`` (0 = everything was kept), how many were lost (``dropped_before``), requests
    that failed (``ooms_before``), and by device and line the ``peak_bytes_before``.
    """

    window_s: float
    trigger: str
    events_before: int
    dropped_before: int
    ooms_before: int
    peak_bytes_before: Mapping[int, Mapping[str, int]]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return asdict(self)


@dataclass(frozen=True)
class TraceFacts:
    """What a trace or slice is, for the heading of a view.

    ``steps``: that ended, in summary or not. ``shown_records`` of ``all_records``: in a slice,
    how much of the whole it is. ``dropped_events``: lost while recording. ``flight``: None unless
    it is a flight recording. ``aged``: what was summarised to keep the file small. ``devices``:
    those with events.
    """

    path: str | None
    simulated: Simulated | None
    steps: int
    duration_ns: int
    shown_records: int
    all_records: int
    dropped_events: int
    flight: FlightRecording | None
    aged: AgedParts
    devices: Mapping[int, DeviceFacts]


def trace_facts(trace: TraceData) -> TraceFacts:
    """Return what a trace or slice is."""
    return TraceFacts(
        path=trace.path,
        simulated=simulated_run(trace.run_record),
        steps=trace.marks.ended_steps,
        duration_ns=trace.duration_ns,
        shown_records=trace.record_count,
        all_records=trace.whole_record_count,
        dropped_events=trace.dropped_events,
        flight=flight_recording(trace.run_record),
        aged=find_aged(trace),
        devices={number: device_facts(trace.run_record, number) for number in trace.active_devices},
    )


def device_facts(run_record: Mapping[str, Any], device: int) -> DeviceFacts:
    """Return what the run record says of one device."""
    entries = run_record.get("devices")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("index") == device:
            return DeviceFacts(entry.get("name"), entry.get("memory_bytes"))
    return DeviceFacts()


def simulated_run(run_record: Mapping[str, Any]) -> Simulated | None:
    """Return what was simulated; None for a run on a real GPU."""
    simulated = run_record.get("simulated")
    if not simulated:
        return None
    if not isinstance(simulated, dict):
        return Simulated(str(simulated), ())
    return Simulated(str(simulated.get("gpu")), tuple(simulated.get("approximations") or ()))


def flight_recording(run_record: Mapping[str, Any]) -> FlightRecording | None:
    """Return how much of the recording this trace is; None for one that is written as it comes."""
    told = run_record.get("flight_recorder")
    if not isinstance(told, dict):
        return None
    before = told.get("before")
    before = before if isinstance(before, dict) else {}
    devices = before.get("devices")
    peaks = {
        device["device"]: device["peak_bytes"]
        for device in (devices if isinstance(devices, list) else ())
        if isinstance(device, dict) and isinstance(device.get("peak_bytes"), dict)
    }
    return FlightRecording(
        window_s=_count(told, "window_ns") / 1e9,
        trigger=str(told.get("trigger", "end")),
        events_before=_count(before, "events"),
        dropped_before=_count(before, "dropped"),
        ooms_before=_count(before, "ooms"),
        peak_bytes_before=peaks,
    )


def _count(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    return value if isinstance(value, int) else 0


def uses_expandable_segments(run_record: Mapping[str, Any]) -> bool:
    """Return whether the allocator was told to grow its segments."""
    allocator = run_record.get("allocator")
    settings = allocator.get("settings") if isinstance(allocator, dict) else None
    return "expandable_segments:True" in str(settings or "")


def world_size(run_record: Mapping[str, Any]) -> int:
    """Return how many processes the run had, 1 where the run record does not say."""
    size = run_record.get("world_size")
    return size if isinstance(size, int) else 1
