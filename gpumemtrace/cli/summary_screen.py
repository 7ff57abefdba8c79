"""A summary as tables and lines on a terminal, or plain text in a pipe."""

from __future__ import annotations

import shlex

import numpy as np
from rich.console import Console

from gpumemtrace.analysis.aged import describe_ranges, describe_steps
from gpumemtrace.analysis.answers import Answers
from gpumemtrace.analysis.endings import describe_losses
from gpumemtrace.analysis.facts import flight_recording
from gpumemtrace.analysis.flight_wording import describe_recording
from gpumemtrace.analysis.lines import LINES
from gpumemtrace.analysis.peaks import Peak
from gpumemtrace.analysis.summary import DeviceSummary, Summary
from gpumemtrace.cli.answers_screen import print_device_answers, print_times_line
from gpumemtrace.cli.console import make_console, make_table
from gpumemtrace.cli.training_wording import describe_training
from gpumemtrace.cli.wording import describe_run, explain
from gpumemtrace.units import format_bytes, format_count, format_duration

__all__ = ["print_summary"]

_LABELS = {"device_used": "device used"}
_MOST_FAILURES = 5
_MOST_CHARACTERS = 120


def print_summary(answers: Answers, *, hints: bool) -> None:
    """Print the answers on stdout, what went wrong first; ``hints``: and what to type next."""
    console, summary = make_console(), answers.summary
    console.print(
        f"{summary.path}: {describe_steps(summary.steps, summary.check.aged)}, "
        f"{format_duration(summary.duration_s)}, {format_count(summary.events, 'event')}"
    )
    for line in _what_went_wrong(summary):
        console.print(line, style="bold red")
    for line in _what_is_missing(summary):
        console.print(line, style="yellow")
    for line in _heading(summary):
        console.print(line)
    for found in answers.devices:
        device = found.summary
        _print_peaks(console, device)
        _print_steps(console, device)
        _print_phases(console, summary, device)
        print_device_answers(console, found)
        _print_retries(console, device)
    print_times_line(console, answers)
    if not summary.devices:
        console.print(
            "\nno events: this process allocated no CUDA memory. In a run of several processes, "
            "look at the traces of the others."
        )
    if hints and summary.path is not None and summary.devices:
        path, picture = shlex.quote(summary.path), summary.path.removesuffix(".gmt") + ".png"
        commands = [f"oom {path}"] if _ran_out_of_memory(summary) else []
        commands += [f"peak {path}", f"plot {path} -o {shlex.quote(picture)}"]
        console.print("\nNext: " + "\n      ".join(f"gpumemtrace {what}" for what in commands))


def _ran_out_of_memory(summary: Summary) -> bool:
    died = summary.error is not None and summary.error.is_out_of_memory
    return died or any(device.out_of_memory for device in summary.devices)


def _what_went_wrong(summary: Summary) -> list[str]:
    """Requests that failed, and the error with which the program ended."""
    lines = []
    for device in summary.devices:
        failures = device.out_of_memory
        lines += [
            f"Out of memory on cuda:{device.device}: {format_bytes(failure.size_bytes)} could not "
            f"be had in {_place(failure)}."
            for failure in failures[:_MOST_FAILURES]
        ]
        if len(failures) > _MOST_FAILURES:
            lines.append(f"… showing {_MOST_FAILURES} of {len(failures):,} failed requests.")
    if summary.error is not None:
        is_told = bool(lines) and summary.error.is_pytorch_out_of_memory
        text = "it." if is_told else str(summary.error).partition("\n")[0]
        cut = f"{text[:_MOST_CHARACTERS]}…" if len(text) > _MOST_CHARACTERS else text
        lines.append(f"The program ended with {cut}")
    return lines


def _what_is_missing(summary: Summary) -> list[str]:
    """Losses, and damage to the file."""
    lines = []
    if (flight := flight_recording(summary.run_record)) is not None:
        lines.append(describe_recording(flight))
    if summary.dropped_events:
        lines.append(f"{describe_losses(summary.dropped_events)}.")
    if aged := summary.check.aged:
        lines.append(
            f"Steps {aged.first:,} to {aged.last:,} are summaries, to keep the file small "
            f"({aged.left_out_events:,} events left out): peaks are exact, blocks are listed only "
            f"of steps {describe_ranges(aged.detailed)}."
        )
        if aged.merged_steps:
            lines.append(
                f"{aged.merged_steps:,} of them share summaries: their phases are not known."
            )
    if not summary.complete and summary.check.verdict != "recovered":
        lines.append("The trace ended without clean close: what came last may be missing.")
    return lines + explain(summary.check, without=("not_closed",))


def _heading(summary: Summary) -> list[str]:
    """What ran, and on what."""
    lines = []
    if run := describe_run(summary.run_record):
        lines.append(", ".join(run))
    if training := describe_training(summary.run_record):
        lines.append(f"Trained: {'; '.join(training)}")
    if summary.simulated is not None:
        lines.append(f"Simulated {summary.simulated.card}: there was no GPU.")
        lines += [f"  approximated: {_as_text(a)}" for a in summary.simulated.approximations]
        if not summary.simulated.approximations:
            lines.append("  nothing was approximated")
    return lines


def _as_text(approximation: object) -> str:
    """One entry of the simulated GPU's report: ``{"name", "calls", "what"}``."""
    if not isinstance(approximation, dict) or "name" not in approximation:
        return str(approximation)
    calls = approximation.get("calls")
    times = f" ({format_count(calls, 'call')})" if isinstance(calls, int) else ""
    return f"{approximation['name']}{times}: {approximation.get('what', '')}"


def _print_peaks(console: Console, device: DeviceSummary) -> None:
    title = f"\ncuda:{device.device}"
    if device.facts.name:
        title += f" {device.facts.name}"
    if device.facts.capacity_bytes:
        title += f", {format_bytes(device.facts.capacity_bytes)}"
    table = make_table(console, title, ["", "peak", "reached in"])
    table.columns[2].justify = "left"
    for name in LINES:
        peak = device.peaks.lines[name]
        label = _LABELS.get(name, name)
        if peak is None:
            table.add_row(label, "not known", "", style="dim")
        else:
            style = "bold" if name == "allocated" else ""
            table.add_row(label, format_bytes(peak.size_bytes), _place(peak), style=style)
    console.print(table)


def _place(peak: Peak) -> str:
    phase = f"{peak.phase}, " if peak.phase else ""
    return f"{phase}step {peak.step}, at {format_duration(peak.time_ns / 1e9)}"


def _print_steps(console: Console, device: DeviceSummary) -> None:
    steps = device.peaks.steps
    if len(steps.number) < 2:
        return
    peak, end = steps.peak["allocated"], steps.end["allocated"]
    at = int(np.argmax(peak))
    singles = int(steps.is_single.sum())
    of = f" of the {singles:,} told one by one" if (steps.count > 1).any() else ""
    console.print(
        f"Peak per step: median {format_bytes(steps.median_peak_bytes)}{of}, "
        f"highest {format_bytes(int(peak[at]))} in step {steps.number[at]}. "
        f"In use at its end: {format_bytes(int(end[0]))} after step {steps.number[0]}, "
        f"{format_bytes(int(end[-2]))} after step {steps.number[-2]}."
    )


def _print_phases(console: Console, summary: Summary, device: DeviceSummary) -> None:
    uses = [use for use in device.phases.phases if use.time_s or use.count]
    outside = device.phases.outside
    if not uses:
        return
    columns = ["phase", "times", "in total", "peak allocated", "peak reserved", "kept each"]
    table = make_table(console, "", columns)
    highest = max((use.peak["allocated"] or 0) for use in uses)
    for use in uses:
        allocated, reserved = use.peak["allocated"], use.peak["reserved"]
        table.add_row(
            use.name,
            f"{use.count:,}",
            format_duration(use.time_s),
            "" if allocated is None else format_bytes(allocated),
            "not known" if reserved is None else format_bytes(reserved),
            _signed(use.net_allocated_bytes / max(use.count, 1)),
            style="bold" if allocated == highest else "",
        )
    if outside.peak["allocated"] and outside.time_s > 0:
        reserved = outside.peak["reserved"]
        table.add_row(
            "(no phase, or not known)" if summary.check.aged.merged_steps else "(no phase)",
            "",
            format_duration(outside.time_s),
            format_bytes(outside.peak["allocated"]),
            "not known" if reserved is None else format_bytes(reserved),
            _signed(outside.net_allocated_bytes),
            style="dim",
        )
    console.print(table)


def _signed(size_bytes: float) -> str:
    return f"{'+' if size_bytes > 0 else ''}{format_bytes(size_bytes)}"


def _print_retries(console: Console, device: DeviceSummary) -> None:
    if device.retries:
        times = "Once" if device.retries == 1 else f"{device.retries:,} times"
        console.print(f"{times} the allocator had to flush its cache and try again.")
