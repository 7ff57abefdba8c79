"""A peak and what owned it, as a sentence and tables."""

from __future__ import annotations

from collections import Counter

import numpy as np
from rich.console import Console

from gpumemtrace.analysis.live_set import LiveGroup
from gpumemtrace.analysis.owners import OWNERS
from gpumemtrace.analysis.peak_live_set import PeakLiveSet
from gpumemtrace.cli.console import make_console, make_table
from gpumemtrace.cli.wording import GROUP_TITLES
from gpumemtrace.units import format_bytes, format_count, format_duration

__all__ = ["print_peak"]

_MOST_NAMED = 3


def print_peak(peak: PeakLiveSet, *, by: str, top: int, with_steps: bool) -> None:
    """Print it on stdout; ``with_steps``: and which phase sets the peak from step to step."""
    console = make_console()
    console.print(_sentence(peak))
    if peak.is_summarised:
        console.print(
            f"Step {peak.step} was summarised to keep the file small: its peak is exact, of its "
            "blocks only those that outlived it are listed."
        )
    _print_groups(console, peak, by, top)
    if with_steps and len(peak.steps) > 1:
        console.print(_steps_sentence(peak))


def _sentence(peak: PeakLiveSet) -> str:
    phase = f", {peak.phase}" if peak.phase else ""
    groups = peak.group_by("category")[:_MOST_NAMED]
    owners = ", ".join(f"{_words(group.name)} {format_bytes(group.size_bytes)}" for group in groups)
    return (
        f"cuda:{peak.device}: peak {format_bytes(peak.size_bytes)} {peak.line} in step "
        f"{peak.step}{phase}, at {format_duration(peak.time_ns / 1e9)}: {owners}"
    )


def _print_groups(console: Console, peak: PeakLiveSet, by: str, top: int) -> None:
    groups = list(peak.group_by(by))
    shown, others = groups[:top], groups[top:]
    if others:
        blocks = sum(group.blocks or 0 for group in others)
        size_bytes = sum(group.size_bytes for group in others)
        shown.append(LiveGroup(f"{len(others)} more", size_bytes, blocks))
    table = make_table(console, "", [GROUP_TITLES[by], peak.line, "share", "blocks"])
    for group in [*shown, LiveGroup("all", peak.size_bytes, len(peak.blocks))]:
        table.add_row(
            group.name if by in OWNERS else _words(group.name),
            format_bytes(group.size_bytes),
            f"{group.size_bytes / max(peak.size_bytes, 1):.1%}",
            "" if group.blocks is None else f"{group.blocks:,}",
            style="bold" if group.name == "all" else "",
        )
    console.print(table)


def _steps_sentence(peak: PeakLiveSet) -> str:
    """Say which phases set the peaks of the steps, and how high they are."""
    steps = peak.steps
    names = ("no phase", *peak.phase_names)
    # Of steps that are told as one no phase is known.
    counts = Counter(names[i + 1] for i in steps.phase[steps.count == 1].tolist())
    phases = [f"{name} in {count:,}" for name, count in counts.most_common()]
    total = int(steps.count.sum())
    if counts.total() < total:
        phases.append(f"not known in {total - counts.total():,} that share summaries")
    median = format_bytes(float(np.median(np.repeat(steps.size_bytes, steps.count))))
    over = format_count(total, "step")
    return f"Over {over}: median peak {median}; the phase that sets it: {', '.join(phases)}."


def _words(name: str) -> str:
    return name.replace("_", " ")
