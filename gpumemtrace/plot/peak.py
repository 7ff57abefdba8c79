"""The peak: what owned it, in which blocks, and whether the other steps' peaks are like it.

Shows `gpumemtrace.analysis.peak_live_set.PeakLiveSet` and computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpumemtrace.analysis.categories import CATEGORY_NAMES, find_categories
from gpumemtrace.analysis.peak_live_set import PeakLiveSet, find_peak_live_set
from gpumemtrace.analysis.rest import NOT_SEEN, SUMMARISED
from gpumemtrace.analysis.step_bands import find_highest_stretches
from gpumemtrace.plot.bars import Bar, draw_bars
from gpumemtrace.plot.by_device import NO_EVENTS, ByDevice, figure_for, of_devices
from gpumemtrace.plot.frame import (
    add_frame,
    axes_or_new,
    context_of,
    dress_memory,
    place_of,
    plain,
    say,
)
from gpumemtrace.plot.stacks import category_color, key_of, stack, words
from gpumemtrace.plot.step_axis import dress_steps
from gpumemtrace.plot.style import CATEGORY_COLORS
from gpumemtrace.plot.theme import ink
from gpumemtrace.trace_data import TraceData
from gpumemtrace.units import format_bytes, format_count

__all__ = ["build", "draw", "plot_peak", "plot_peak_kinds", "plot_step_peaks"]

_MOST_KINDS = 9
_MOST_ROWS = 400
_MOST_NAMED = 3


def build(
    trace: TraceData, *, devices: Sequence[int] | None = None, columns: int = 2000
) -> ByDevice[PeakLiveSet]:
    """Find the peak of the run (or slice) on each device, and what was in use then."""
    active = trace.active_devices
    wanted = [n for n in (active if devices is None else devices) if n in active]
    categories = find_categories(trace) if wanted else None
    found = [find_peak_live_set(trace, device=n, categories=categories) for n in wanted]
    return of_devices(trace, found, devices)


def draw(shown: ByDevice[PeakLiveSet], *, size_inches: tuple[float, float] | None = None) -> Figure:
    """Return the whole figure: for each device its owners, its largest blocks, and all steps."""
    has_steps = any(len(peak.steps) > 1 for peak in shown.found)
    figure, count = figure_for(shown, size_inches, panel_inches=4.9 if has_steps else 2.6)
    rows = count * (2 if has_steps else 1)
    ratios = [1.0, 0.85] * count if has_steps else [1.0] * count
    grid = figure.add_gridspec(rows, 2, height_ratios=ratios)
    if not shown.results:
        say(figure.add_subplot(grid[:, :]), NO_EVENTS)
    steps: list[Axes] = []
    notes: list[str] = []
    for i, (number, peak) in enumerate(shown.results.items()):
        row = i * (2 if has_steps else 1)
        if peak is None:
            ax = figure.add_subplot(grid[row : row + rows // count, :])
            say(ax, f"no events on cuda:{number}: nothing was allocated there")
            ax.set_title(shown.title_of(number), loc="left")
            continue
        ax = plot_peak(peak, figure.add_subplot(grid[row, 0]))
        title = f"{shown.title_of(number)}:  " if len(shown.results) > 1 else ""
        ax.set_title(f"{title}by category", loc="left")
        ax = plot_peak_kinds(peak, figure.add_subplot(grid[row, 1]))
        ax.set_title("by size of block", loc="left")
        kinds = len(peak.blocks.kinds())
        if kinds > _MOST_KINDS:
            notes.append(f"showing {_MOST_KINDS} of {kinds:,} kinds of blocks")
        if has_steps:
            steps.append(plot_step_peaks(peak, figure.add_subplot(grid[row + 1, :])))
            steps[-1].set_title("each step at its own peak", loc="left")
    add_frame(
        figure,
        finding=_finding(shown),
        context=context_of(shown.facts, *notes[:1]),
        below=key_of(steps),
    )
    return figure


def plot_peak(peak: PeakLiveSet, ax: Axes | None = None, *, by: str = "category") -> Axes:
    """Draw a bar for each group of the peak, largest on top; ``by``: see `PeakLiveSet.group_by`."""
    ax = axes_or_new(ax)
    bars = [
        Bar(
            words(group.name),
            group.size_bytes,
            category_color(group.name),
            f"{format_bytes(group.size_bytes)}  {group.size_bytes / max(peak.size_bytes, 1):.1%}"
            + _count(group.blocks),
        )
        for group in peak.group_by(by)
    ]
    draw_bars(bars, ax)
    return ax


def _count(blocks: int | None) -> str:
    return "" if blocks is None else f"  {format_count(blocks, 'block')}"


def plot_peak_kinds(peak: PeakLiveSet, ax: Axes | None = None) -> Axes:
    """Draw a bar for each size and category of block, those with the most bytes on top."""
    ax = axes_or_new(ax)
    kinds = peak.blocks.kinds(of_requests=peak.line == "requested")[:_MOST_KINDS]
    bars = [
        Bar(
            f"{kind.blocks:,} x {format_bytes(kind.block_bytes)}",
            kind.size_bytes,
            category_color(kind.category),
            f"{format_bytes(kind.size_bytes)}  {words(kind.category)}",
        )
        for kind in kinds
    ]
    draw_bars(bars, ax)
    return ax


def plot_step_peaks(peak: PeakLiveSet, ax: Axes | None = None) -> Axes:
    """Stack each step's own peak by category; of very many steps, the highest of its neighbours.

    The last step, which is unfinished, is left out unless it is the highest.
    """
    ax = axes_or_new(ax)
    steps = peak.steps
    count = len(steps)
    if count > 1 and int(steps.size_bytes.argmax()) < count - 1:
        count -= 1
    begin, row = find_highest_stretches(
        steps.number[:count], steps.size_bytes[:count], most_rows=_MOST_ROWS
    )
    factor = dress_memory(ax, max(int(steps.size_bytes.max()), 1), room=0.22)
    rest = steps.size_bytes - steps.category_bytes.sum(axis=1)
    summarised = steps.rest_bytes.get("summarised", np.zeros_like(rest))
    rest = rest - summarised
    parts = {NOT_SEEN: rest.clip(min=0)[row]}
    for name in CATEGORY_COLORS:
        parts[name] = steps.category_bytes[row, CATEGORY_NAMES.index(name)]
    parts[SUMMARISED] = summarised.clip(min=0)[row]
    colors = {name: category_color(name) for name in parts}
    x = np.append(begin - 0.5, steps.number[count - 1] + 0.5)
    stack(
        ax,
        x,
        {name: np.append(part, part[-1]) for name, part in parts.items()},
        colors,
        factor=factor,
    )
    dress_steps(steps.number[:count], ax)
    highest = int(steps.size_bytes.argmax())
    at, top = float(steps.number[highest]), float(steps.size_bytes[highest]) / factor
    low, high = ax.get_xlim()
    is_left = at < (low + high) / 2
    ax.annotate(
        plain(f"{format_bytes(steps.size_bytes[highest])} in step {steps.number[highest]:,}"),
        xy=(at, top),
        xytext=(10 if is_left else -10, 11),
        textcoords="offset points",
        ha="left" if is_left else "right",
        va="center",
        color=ink(),
        arrowprops={"arrowstyle": "-", "color": ink(), "linewidth": 0.7, "shrinkB": 0},
    )
    return ax


def _finding(shown: ByDevice[PeakLiveSet]) -> str:
    if not shown.found:
        return "Nothing was allocated"
    top = max(shown.found, key=lambda peak: peak.size_bytes)
    owners = ", ".join(
        f"{group.size_bytes / max(top.size_bytes, 1):.0%} {words(group.name)}"
        for group in top.group_by("category")[:_MOST_NAMED]
    )
    on = f" of cuda:{top.device}" if len(shown.found) > 1 else ""
    where = place_of(top.phase, top.step)
    return f"The peak{on}, {format_bytes(top.size_bytes)} in {where}: {owners}"
