"""A summary as tables and lines on a terminal, or plain text in a pipe."""

from __future__ import annotations

import shlex

import numpy as np
from rich.console import Console

from gpumemtrace.analysis.answers import Answers
from gpumemtrace.analysis.lines import LINES
from gpumemtrace.analysis.peaks import Peak
from gpumemtrace.analysis.summary import DeviceSummary, Summary
from gpumemtrace.cli.answers_screen import print_device_answers, print_times_line
from gpumemtrace.cli.console import make_console, make_table
from gpumemtrace.cli.training_wording import describe_training
from gpumemtrace.cli.wording import describe_run, explain
from gpumemtrace.units import format_bytes, format_duration

__all__ = ["print_summary"]

_LABELS = {"device_used": "device used"}
_MOST_FAILURES = 5


def print_summary(answers: Answers, *, hints: bool) -> None:
    """Print the answers on stdout; ``hints``: and what to type next."""
    console, summary = make_console(), answers.summary
    for line in _heading(summary):
        console.print(line)
    for found in answers.devices:
        device = found.summary
        _print_peaks(console, device)
        _print_steps(console, device)
        _print_phases(console, device)
        print_device_answers(console, found)
        _print_failures(console, device)
    print_times_line(console, answers)
    if not summary.devices:
        console.print(
            "\nno events: this process allocated no CUDA memory. In a run of several processes, "
            "look at the traces of the others."
        )
    if hints and summary.path is not None and summary.devices:
        picture = summary.path.removesuffix(".gmt") + ".png"
        command = f"gpumemtrace plot {shlex.quote(summary.path)} -o {shlex.quote(picture)}"
        console.print(f"\nNext: gpumemtrace peak {shlex.quote(summary.path)}")
        console.print(f"      {command}")


def _heading(summary: Summary) -> list[str]:
    lines = [
        f"{summary.path}: {summary.steps:,} steps, {format_duration(summary.duration_s)}, "
        f"{summary.events:,} events"
    ]
    if run := describe_run(summary.run_record):
        lines.append(", ".join(run))
    if training := describe_training(summary.run_record):
        lines.append(f"Trained: {'; '.join(training)}")
    if summary.simulated is not None:
        gpu = summary.simulated.gpu.removeprefix("Simulated ")
        lines.append(f"Simulated {gpu}: there was no GPU.")
        lines += [f"  approximated: {_as_text(a)}" for a in summary.simulated.approximations]
        if not summary.simulated.approximations:
            lines.append("  nothing was approximated")
    if summary.dropped_events:
        lines.append(
            f"{summary.dropped_events:,} events were lost: figures are uncertain from each gap to "
            "the next reading of the allocator's counters"
        )
    if not summary.complete:
        lines.append("The trace ended without clean close: what came last may be missing.")
    lines += [f"  {line}" for line in explain(summary.check, without=("not_closed",))]
    return lines


def _as_text(approximation: object) -> str:
    """One entry of the simulated GPU's report: ``{"name", "calls", "what"}``."""
    if not isinstance(approximation, dict) or "name" not in approximation:
        return str(approximation)
    calls = approximation.get("calls")
    times = f" ({calls:,} calls)" if isinstance(calls, int) else ""
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
    console.print(
        f"Peak per step: median {format_bytes(float(np.median(peak)))}, "
        f"highest {format_bytes(int(peak[at]))} in step {steps.number[at]}. "
        f"In use at its end: {format_bytes(int(end[0]))} after step {steps.number[0]}, "
        f"{format_bytes(int(end[-2]))} after step {steps.number[-2]}."
    )


def _print_phases(console: Console, device: DeviceSummary) -> None:
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
            "(no phase)",
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


def _print_failures(console: Console, device: DeviceSummary) -> None:
    for failure in device.out_of_memory[:_MOST_FAILURES]:
        console.print(
            f"Out of memory: {format_bytes(failure.size_bytes)} could not be served "
            f"in {_place(failure)}."
        )
    if len(device.out_of_memory) > _MOST_FAILURES:
        console.print(
            f"… showing {_MOST_FAILURES} of {len(device.out_of_memory):,} failed allocations."
        )
    if device.out_of_memory:
        console.print("Why, and what would have helped: gpumemtrace oom")
    if device.retries:
        console.print(
            f"{device.retries:,} times the allocator had to flush its cache and try again."
        )
