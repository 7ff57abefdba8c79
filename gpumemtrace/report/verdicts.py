"""What the results mean, a sentence each: the first thing that a reader of the page reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpumemtrace.analysis.advice import describe_bottleneck
from gpumemtrace.analysis.aged import describe_ranges
from gpumemtrace.analysis.endings import describe_losses
from gpumemtrace.analysis.facts import flight_recording
from gpumemtrace.analysis.flight_wording import describe_recording
from gpumemtrace.analysis.growth import DeviceGrowth
from gpumemtrace.analysis.growth_wording import describe_growth
from gpumemtrace.analysis.oom_wording import describe_cause, describe_outside
from gpumemtrace.analysis.summary import DeviceSummary
from gpumemtrace.report.places import place_in_words
from gpumemtrace.report.results import Results
from gpumemtrace.units import format_bytes, format_count

__all__ = ["Verdict", "verdicts"]

Level = Literal["good", "note", "warning", "bad"]

# Of a device's memory: when so little is left, a longer sequence or another library takes it.
_NEARLY_FULL = 0.9
# Reserved over allocated at their peaks: above it a look at the cache is worth while.
_MUCH_CACHED = 1.25
_GROWTH_LEVELS: dict[str, Level] = {
    "growing": "bad",
    "fragmentation": "warning",
    "one_large_step": "note",
    "warming_up": "note",
    "stable": "good",
}


@dataclass(frozen=True)
class Verdict:
    """One finding. ``level``: how the reader should take it; ``section``: where more is said."""

    level: Level
    text: str
    section: str


def verdicts(results: Results) -> list[Verdict]:
    """Return the findings, the gravest first; of equal ones in the order of the page."""
    found = [
        verdict for device in results.summary.devices for verdict in _of_device(results, device)
    ]
    found += _of_recording(results)
    grave = ("bad", "warning", "note", "good")
    return sorted(found, key=lambda verdict: grave.index(verdict.level))


def _of_device(results: Results, device: DeviceSummary) -> Iterator[Verdict]:
    on = f" on cuda:{device.device}" if len(results.summary.devices) > 1 else ""
    peak, reserved = device.peaks.lines["allocated"], device.peaks.lines["reserved"]
    capacity = device.facts.capacity_bytes
    if device.out_of_memory:
        yield Verdict("bad", _failure_in_words(results, device, on), "out_of_memory")
    if device.retries:
        times = "Once" if device.retries == 1 else f"{device.retries:,} times"
        yield Verdict(
            "warning",
            f"{times} the allocator had to flush its cache{on} to serve a request, "
            "which stalls the device.",
            "out_of_memory",
        )
    if peak is not None:
        yield Verdict(
            "note",
            f"Memory peaks{on} at {format_bytes(peak.size_bytes)} allocated, "
            f"{place_in_words(peak)}.",
            "timeline",
        )
    if peak is not None and reserved is not None and peak.size_bytes:
        ratio = reserved.size_bytes / peak.size_bytes
        yield Verdict(
            "warning" if ratio >= _MUCH_CACHED else "good",
            f"The allocator took at most {format_bytes(reserved.size_bytes)} from the driver{on}, "
            f"{100 * (ratio - 1):.0f} % above the allocated peak.",
            "segments",
        )
    yield from _bottleneck(results, device, on)
    growth = next((d for d in results.growth.devices if d.device == device.device), None)
    if growth is not None:
        yield Verdict(_GROWTH_LEVELS[growth.verdict], _growth_in_words(growth, on), "growth")
    if capacity and reserved is not None:
        part = reserved.size_bytes / capacity
        yield Verdict(
            "warning" if part >= _NEARLY_FULL else "good",
            f"Reserved memory reached {100 * part:.1f} % of the {format_bytes(capacity)} of "
            f"{device.facts.name or 'the device'}{on}.",
            "timeline",
        )


def _failure_in_words(results: Results, device: DeviceSummary, on: str) -> str:
    """Name the request that the program ended with, else the first that failed."""
    requests = results.oom.requests
    is_fatal = results.oom.died_of_it and requests[-1].device == device.device
    told = device.out_of_memory[-1 if is_fatal else 0]
    count = len(device.out_of_memory)
    if is_fatal:
        others = f", the last of {count:,}" if count > 1 else ""
        ended = f"; the program ended with it{others}"
    else:
        ended = f"; {count - 1:,} more followed" if count > 1 else ""
    mine = (r for r in requests if r.device == device.device)
    why = next((r for r in mine if r.place.event == told.event), None)
    cause = "" if why is None else f" Cause: {describe_cause(why)}"
    return (
        f"Out of memory{on}: a request for {format_bytes(told.size_bytes)} could not be served "
        f"{place_in_words(told)}{ended}.{cause}"
    )


def _bottleneck(results: Results, device: DeviceSummary, on: str) -> Iterator[Verdict]:
    found = next(one for one in results.answers.devices if one.summary.device == device.device)
    if found.bottleneck is None:
        return
    best = found.advice[0] if found.advice else None
    helps = (
        ""
        if best is None
        else (f" What would help most: {best.change}, at most {format_bytes(best.saves_bytes)}.")
    )
    yield Verdict(
        "note",
        f"What takes most{on}: {describe_bottleneck(found.bottleneck)}.{helps}",
        "peak",
    )


def _growth_in_words(growth: DeviceGrowth, on: str) -> str:
    text = describe_growth(growth)
    return f"{text[0].upper()}{text[1:]}{on}."


def _of_recording(results: Results) -> Iterator[Verdict]:
    summary = results.summary
    if results.oom.outside is not None:
        yield Verdict("bad", f"{describe_outside(results.oom.outside)}.", "out_of_memory")
    if not summary.devices:
        yield Verdict(
            "bad",
            "No events: this process allocated no memory on any GPU. In a run of several "
            "processes, look at the traces of the others.",
            "losses",
        )
    if summary.dropped_events:
        yield Verdict(
            "warning",
            f"{describe_losses(summary.dropped_events)}.",
            "losses",
        )
    else:
        yield Verdict("good", "No event was lost.", "losses")
    if (flight := flight_recording(summary.run_record)) is not None:
        text = describe_recording(flight)
        yield Verdict("warning" if flight.events_before else "good", text, "losses")
    if aged := summary.check.aged:
        yield Verdict(
            "good",
            f"{aged.steps:,} of {format_count(summary.steps, 'step')} are kept in summary only, to "
            f"keep the file small; in full detail are steps {describe_ranges(aged.detailed)}.",
            "losses",
        )
    if summary.check.verdict == "corrupt":
        yield Verdict("bad", "The file is damaged, or events contradict each other.", "losses")
    elif summary.check.verdict == "recovered":
        yield Verdict("good", "The process was killed; all that it had recorded is here.", "losses")
    elif not summary.complete:
        yield Verdict(
            "warning",
            "The recording was not closed: what came last may be missing.",
            "losses",
        )
