"""What the run record says of the run and its devices, for several results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpumemtrace.trace_data import TraceData

__all__ = [
    "DeviceFacts",
    "Simulated",
    "TraceFacts",
    "device_facts",
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


@dataclass(frozen=True)
class TraceFacts:
    """What a trace or slice is, for the heading of a view.

    ``steps``: completed ones. ``shown_records`` of ``all_records``: in a slice, how much of the
    whole it is. ``dropped_events``: lost while recording. ``devices``: those with events.
    """

    path: str | None
    simulated: Simulated | None
    steps: int
    duration_ns: int
    shown_records: int
    all_records: int
    dropped_events: int
    devices: Mapping[int, DeviceFacts]


def trace_facts(trace: TraceData) -> TraceFacts:
    """Return what a trace or slice is."""
    return TraceFacts(
        path=trace.path,
        simulated=simulated_run(trace.run_record),
        steps=len(trace.steps),
        duration_ns=trace.duration_ns,
        shown_records=trace.record_count,
        all_records=trace.whole_record_count,
        dropped_events=trace.dropped_events,
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


def uses_expandable_segments(run_record: Mapping[str, Any]) -> bool:
    """Return whether the allocator was told to grow its segments."""
    allocator = run_record.get("allocator")
    settings = allocator.get("settings") if isinstance(allocator, dict) else None
    return "expandable_segments:True" in str(settings or "")


def world_size(run_record: Mapping[str, Any]) -> int:
    """Return how many processes the run had, 1 where the run record does not say."""
    size = run_record.get("world_size")
    return size if isinstance(size, int) else 1
