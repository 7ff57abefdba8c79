"""What a flight recording holds and lacks, in words."""

from __future__ import annotations

from gpumemtrace.analysis.facts import FlightRecording
from gpumemtrace.units import format_bytes, format_count, format_duration

__all__ = ["describe_not_kept", "describe_recording"]

_TRIGGERS = {
    "end": "at the end of the run",
    "oom": "when memory ran out",
    "dump": "when the program asked for it",
    "sigusr2": "on SIGUSR2",
}


def describe_recording(flight: FlightRecording) -> str:
    """Return a sentence: what the trace is, what it lacks, and how memory was until then."""
    when = _TRIGGERS.get(flight.trigger, f"on {flight.trigger}, which ended the process")
    what = (
        f"Flight recording of the last {format_duration(flight.window_s)}, written {when}: "
        f"{describe_not_kept(flight)}"
    )
    before = _before(flight)
    return f"{what} ({before})." if before else f"{what}."


def describe_not_kept(flight: FlightRecording) -> str:
    """Return how much came before what was kept."""
    if not flight.events_before:
        return "nothing came before it"
    verb = "is" if flight.events_before == 1 else "are"
    return f"{format_count(flight.events_before, 'event')} before it {verb} not kept"


def _before(flight: FlightRecording) -> str:
    if not flight.events_before:
        return ""
    parts = [
        f"on cuda:{device} at most "
        + ", ".join(
            f"{format_bytes(peaks[line])} {line}"
            for line in ("allocated", "reserved")
            if isinstance(peaks.get(line), int)
        )
        for device, peaks in sorted(flight.peak_bytes_before.items())
        if isinstance(peaks.get("allocated"), int)
    ]
    if flight.ooms_before:
        parts.append(f"{format_count(flight.ooms_before, 'request')} failed")
    if flight.dropped_before:
        parts.append(f"{format_count(flight.dropped_before, 'event')} lost")
    return "; ".join(parts)
