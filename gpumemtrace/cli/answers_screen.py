"""What owned the peak, what grows and what would help, below the figures of a device."""

from __future__ import annotations

from rich.console import Console

from gpumemtrace.analysis.advice import describe_bottleneck
from gpumemtrace.analysis.answers import Answers, DeviceAnswers
from gpumemtrace.analysis.gap_results import DeviceGaps, Extreme
from gpumemtrace.analysis.growth_wording import describe_growth
from gpumemtrace.analysis.rest import NOT_SEEN, SUMMARISED
from gpumemtrace.cli.console import make_table
from gpumemtrace.units import format_bytes, format_count, format_duration

__all__ = ["print_device_answers", "print_times_line"]

_MOST_ADVICE = 5


def print_device_answers(console: Console, device: DeviceAnswers) -> None:
    """Print the peak by category, the verdict on growth, and what would lower the peak."""
    if device.category_bytes:
        console.print(f"\nAt the allocated peak: {_composition(device)}.")
    if device.bottleneck is not None:
        console.print(f"Bottleneck: {describe_bottleneck(device.bottleneck)}.")
    for line in _gap_lines(device.gaps):
        console.print(line)
    if device.growth is not None and device.growth.steps:
        console.print(f"Growth: {describe_growth(device.growth)}.")
    _print_advice(console, device)


def print_times_line(console: Console, answers: Answers) -> None:
    """Print how long steps take, and what made some slow."""
    times = answers.times
    if not len(times.number):
        return
    line = f"\nSteps take {format_duration(times.median_ns / 1e9)} (median)"
    if answers.summary.simulated is not None:
        line += " of this machine's CPU, not of a GPU"
    # The first step holds all that came before it.
    slow = [step for step in times.slow if step.step != times.number[0]]
    if slow:
        by_driver = sum(step.cause is not None for step in slow)
        verb = "was" if len(slow) == 1 else "were"
        line += f"; {len(slow):,} {verb} slow, {by_driver:,} because of the allocator"
    console.print(f"{line}.")


def _composition(device: DeviceAnswers) -> str:
    total = device.summary.highest.size_bytes
    rest = {SUMMARISED: device.summarised_bytes, NOT_SEEN: device.not_seen_bytes}
    parts = [*device.category_bytes.items(), *rest.items()]
    parts = sorted((part for part in parts if part[1]), key=lambda part: -part[1])
    return ", ".join(
        f"{name.replace('_', ' ')} {format_bytes(size)} ({size / max(total, 1):.0%})"
        for name, size in parts
    )


def _gap_lines(gaps: DeviceGaps | None) -> list[str]:
    if gaps is None:
        return []
    lines = []
    peak = gaps.highest.get("allocated")
    if peak is not None and peak.gaps.outside is not None:
        what = "Outside PyTorch" if gaps.own_is_known else "Outside PyTorch or of other processes"
        line = f"{what} at the peak: {format_bytes(peak.gaps.outside)}"
        if peak.gaps.others is not None:
            line += f"; other processes: {format_bytes(peak.gaps.others)}"
        lines.append(f"{line}.")
    free = gaps.highest.get("device_free")
    if free is not None:
        line = f"Least free on the device: {format_bytes(free.size_bytes)} in {_place(free)}"
        with_cache = gaps.highest.get("device_free_with_cached")
        if with_cache is not None:
            line += f"; never less than {format_bytes(with_cache.size_bytes)} with the cache"
        lines.append(f"{line}.")
    for found in gaps.breaks:
        if not found.is_harmless:
            pair = found.pair.replace("_", " ").replace(">", " above ")
            lines.append(
                f"{pair} in {format_count(found.records, 'record')}, by "
                f"{format_bytes(found.most_bytes)} at most: {found.reason.replace('_', ' ')}."
            )
    return lines


def _place(found: Extreme) -> str:
    phase = f"{'/'.join(found.place.phase)}, " if found.place.phase else ""
    return f"{phase}step {found.place.step}"


def _print_advice(console: Console, device: DeviceAnswers) -> None:
    if not device.advice:
        return
    table = make_table(console, "\nWhat would lower the peak", ["change", "saves at most", "since"])
    table.columns[2].justify = "left"
    for column in table.columns:
        column.no_wrap = False
    for advice in device.advice[:_MOST_ADVICE]:
        saves = format_bytes(advice.saves_bytes)
        if advice.line != "allocated":
            saves += f" of {advice.line}"
        table.add_row(advice.change, saves, advice.evidence)
    console.print(table)
    if len(device.advice) > _MOST_ADVICE:
        console.print(f"… showing {_MOST_ADVICE} of {len(device.advice)}; --json has all")
