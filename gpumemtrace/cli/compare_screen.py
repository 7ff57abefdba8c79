"""A comparison as a sentence and tables on a terminal, or plain text in a pipe."""

from __future__ import annotations

from rich.console import Console

from gpumemtrace.analysis.aged import describe_steps
from gpumemtrace.analysis.compare import Comparison, DeviceComparison, Difference
from gpumemtrace.analysis.compare_wording import (
    describe_difference,
    describe_share,
    describe_sizes,
)
from gpumemtrace.analysis.lines import LINES
from gpumemtrace.analysis.owners import OWNERS
from gpumemtrace.cli.console import make_console, make_table
from gpumemtrace.cli.wording import GROUP_TITLES
from gpumemtrace.units import format_bytes, format_duration

__all__ = ["print_comparison"]

_MOST_RECORD_LINES = 12
_MOST_CHARACTERS = 60


def print_comparison(found: Comparison, *, top: int) -> None:
    """Print it; ``top``: how many groups of allocations to list."""
    console = make_console()
    for side, summary in (("A", found.a), ("B", found.b)):
        steps = describe_steps(summary.steps, summary.check.aged)
        console.print(f"{side}  {_name(summary.path)}: {steps}")
    for line in _record_lines(found):
        console.print(line)
    if found.no_times is not None:
        console.print(f"Step times are not compared: {found.no_times}.")
    for device in found.devices:
        console.print(f"\n{describe_difference(found, device)}", style="bold")
        _print_figures(console, found, device)
        _print_at_peak(console, device, top)
        _print_phases(console, device, with_times=found.no_times is None)
        _print_groups(console, device, top)


def _name(path: str | None) -> str:
    return path or "in memory"


def _record_lines(found: Comparison) -> list[str]:
    """What was not alike in how the two were run."""
    if not found.record:
        return []
    lines = ["The runs were not set up alike:"]
    lines += [
        f"  {d.key}: {_shortened(d.a)} in A, {_shortened(d.b)} in B"
        for d in found.record[:_MOST_RECORD_LINES]
    ]
    if len(found.record) > _MOST_RECORD_LINES:
        lines.append(f"  … showing {_MOST_RECORD_LINES} of {len(found.record)}; --json has all")
    return lines


def _shortened(value: object) -> str:
    text = str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _print_figures(console: Console, found: Comparison, device: DeviceComparison) -> None:
    table = make_table(console, "", ["peak", "A", "B", "B - A", ""])
    for line in LINES:
        peak = device.peaks[line]
        if peak.a is not None or peak.b is not None:
            table.add_row(line.replace("_", " "), *_bytes(peak))
    table.add_row("allocated, median step", *_bytes(device.step_peak_bytes))
    if found.step_time_s is not None:
        table.add_row("step time, median", *_times(found.step_time_s))
    if device.growth.a or device.growth.b:
        table.add_row("growth per step", *_bytes(device.growth))
    console.print(table)


def _print_at_peak(console: Console, device: DeviceComparison, top: int) -> None:
    """What the peaks are made of: by category, or as it was asked for."""
    groups, by = device.group_bytes, device.by
    if by is None:
        groups, top = device.category_bytes, len(device.category_bytes)
    heading = "at the peak" if by is None else f"at the peak, by {GROUP_TITLES[by]}"
    table = make_table(console, "", [heading, "A", "B", "B - A", ""])
    for name, size in list(groups.items())[:top]:
        table.add_row(name if by in OWNERS else name.replace("_", " "), *_bytes(size))
    if groups:
        console.print(table)
    if len(groups) > top:
        console.print(f"… showing {top} of {len(groups):,}; --top and --json show more")


def _print_phases(console: Console, device: DeviceComparison, *, with_times: bool) -> None:
    columns = ["phase", "peak allocated A", "B", "B - A", "", "kept each, B - A"]
    columns += ["time each, B - A"] if with_times else []
    table = make_table(console, "", columns)
    for phase in device.phases:
        kept = phase.kept_bytes.change
        time = None if phase.time_s is None else phase.time_s.change
        table.add_row(
            phase.name,
            *_bytes(phase.peak_allocated_bytes),
            "" if kept is None else _signed(kept),
            *(["" if time is None else _signed_time(time)] if with_times else []),
        )
    if device.phases:
        console.print(table)


def _print_groups(console: Console, device: DeviceComparison, top: int) -> None:
    if not device.groups or top < 1:
        return
    by = device.by if device.by in OWNERS else None
    columns = ["size", "phase", "A, a step", "B, a step", "B - A"]
    columns += [] if by is None else [GROUP_TITLES[by]]
    table = make_table(console, "\nAllocated more or less often", columns)
    for group in device.groups[:top]:
        table.add_row(
            describe_sizes(group),
            group.phase or "(no phase)",
            f"{group.a_per_step:,.4g}",
            f"{group.b_per_step:,.4g}",
            _signed(group.change_bytes),
            *([] if by is None else [group.owner or ""]),
        )
    console.print(table)
    if len(device.groups) > top:
        console.print(f"… showing {top} of {len(device.groups):,}; --top and --json show more")


def _bytes(difference: Difference) -> list[str]:
    change = difference.change
    return [
        "" if difference.a is None else format_bytes(difference.a),
        "" if difference.b is None else format_bytes(difference.b),
        "" if change is None else _signed(change),
        describe_share(difference),
    ]


def _times(difference: Difference) -> list[str]:
    change = difference.change
    return [
        "" if difference.a is None else format_duration(difference.a),
        "" if difference.b is None else format_duration(difference.b),
        "" if change is None else _signed_time(change),
        describe_share(difference),
    ]


def _signed(size_bytes: float) -> str:
    return f"{'+' if size_bytes > 0 else ''}{format_bytes(size_bytes)}"


def _signed_time(seconds: float) -> str:
    return f"{'+' if seconds > 0 else ''}{format_duration(seconds)}" if seconds else "0 s"
