"""Comparison: two runs side by side by step, line, phase, and what only one of them allocates.

Shows a `gpumemtrace.analysis.compare.Comparison` and computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from gpumemtrace.analysis.aged import describe_steps
from gpumemtrace.analysis.compare import (
    Comparison,
    DeviceComparison,
    Difference,
    compare_traces,
)
from gpumemtrace.analysis.compare_wording import describe_difference, describe_sizes
from gpumemtrace.analysis.facts import TraceFacts, trace_facts
from gpumemtrace.analysis.step_bands import find_step_bands
from gpumemtrace.analysis.summary import Summary
from gpumemtrace.plot.by_device import NO_EVENTS
from gpumemtrace.plot.frame import (
    add_frame,
    axes_or_new,
    device_title,
    dress,
    dress_memory,
    plain,
    say,
)
from gpumemtrace.plot.stacks import words
from gpumemtrace.plot.step_axis import dress_steps, marker_for
from gpumemtrace.plot.style import NO_PHASE, SIDE_COLORS, memory_unit
from gpumemtrace.plot.theme import faint, ink, line_color, quiet
from gpumemtrace.trace_data import TraceData
from gpumemtrace.units import byte_unit, format_bytes, format_duration

__all__ = [
    "Compared",
    "build",
    "draw",
    "plot_categories",
    "plot_changes",
    "plot_peaks",
    "plot_step_peaks",
]

_MOST_GROUPS = 10
_MOST_PHASES = 8
_MOST_ROWS = 120
# Beyond ten times as much a percentage tells nothing.
_MOST_SHARE = 9
_LINES = ("allocated", "reserved")


@dataclass(frozen=True)
class Compared:
    """``found``, of the ``devices`` shown (None: all), and what the two traces are."""

    found: Comparison
    a: TraceFacts
    b: TraceFacts
    devices: Sequence[int] | None

    @property
    def shown(self) -> list[DeviceComparison]:
        """The devices that are shown."""
        return [d for d in self.found.devices if self.devices is None or d.device in self.devices]


def build(
    trace: TraceData,
    *,
    other: TraceData,
    devices: Sequence[int] | None = None,
    columns: int = 2000,
) -> Compared:
    """Compare ``trace`` (A) with ``other`` (B)."""
    return Compared(compare_traces(trace, other), trace_facts(trace), trace_facts(other), devices)


def draw(shown: Compared, *, size_inches: tuple[float, float] | None = None) -> Figure:
    """Return the whole figure: for each device its steps, its peaks, and what changed most."""
    count = max(len(shown.shown), 1)
    size = size_inches or (12, 1.6 + 5.2 * count)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.add_gridspec(
        2 * count, 3, height_ratios=[1, 1.15] * count, width_ratios=[1, 1, 1.4]
    )
    if not shown.shown:
        say(figure.add_subplot(grid[:, :]), NO_EVENTS)
    notes: list[str] = []
    for i, device in enumerate(shown.shown):
        facts = shown.a.devices.get(device.device) or shown.b.devices.get(device.device)
        upper = figure.add_subplot(grid[2 * i, :])
        plot_step_peaks(shown.found, device.device, upper)
        upper.set_title(f"{device_title(device.device, facts)}:  peak of each step", loc="left")
        lower = [figure.add_subplot(grid[2 * i + 1, column]) for column in range(3)]
        plot_peaks(device, lower[0]).set_title("peaks", loc="left")
        plot_categories(device, lower[1]).set_title("what the peak is made of", loc="left")
        plot_changes(device, lower[2]).set_title("a step allocates, B - A", loc="left")
        if len(device.groups) > _MOST_GROUPS:
            notes.append(f"showing {_MOST_GROUPS} of {len(device.groups):,} changes")
    if shown.found.record:
        keys = [entry.key for entry in shown.found.record]
        more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
        notes.append(f"not set up alike: {', '.join(keys[:3])}{more}")
    add_frame(
        figure,
        finding=_finding(shown),
        context="   ".join(notes),
        handles=[_side("A", shown.a, shown.found), _side("B", shown.b, shown.found)],
    )
    return figure


def plot_step_peaks(found: Comparison, device: int, ax: Axes | None = None) -> Axes:
    """Draw the allocated peak of each completed step in A and in B, aligned by step."""
    ax = axes_or_new(ax)
    drawn = {}
    for side, summary in (("A", found.a), ("B", found.b)):
        for one in summary.devices:
            if one.device == device:
                steps = one.peaks.steps
                # The last one is the unfinished step.
                complete = slice(0, max(len(steps.number) - 1, 1))
                drawn[side] = _each_step(
                    steps.number[complete],
                    steps.count[complete],
                    steps.peak["allocated"][complete],
                )
    highest = max((int(peak.max()) for _, peak in drawn.values()), default=1)
    factor = dress_memory(ax, max(highest, 1), room=0.1)
    # Aligned from the first step of each, so that two parts of one run can be compared.
    aligned = len({int(number[0]) for number, _ in drawn.values()}) > 1
    for side, (number, peak) in drawn.items():
        x = number - number[0] if aligned else number
        bands = find_step_bands(x, peak[:, np.newaxis], most_rows=_MOST_ROWS)
        y, color = bands.median[:, 0] / factor, line_color(SIDE_COLORS[side])
        ax.plot(bands.number, y, color=color, linewidth=1.4, label=side, **marker_for(y))
        if not bands.is_exact:
            low, high = bands.low[:, 0] / factor, bands.high[:, 0] / factor
            ax.fill_between(bands.number, low, high, color=color, alpha=0.18, linewidth=0)
    every = [n - n[0] if aligned else n for n, _ in drawn.values()]
    dress_steps(np.concatenate([np.zeros(0, np.int64), *every]), ax)
    if aligned:
        ax.set_xlabel("steps since the first one shown")
    return ax


def plot_peaks(device: DeviceComparison, ax: Axes | None = None) -> Axes:
    """Draw the peak of lines and phases in A and in B, joined: the longer, the more changed."""
    ax = axes_or_new(ax)
    rows = [(f"{name}, run", device.peaks[name]) for name in _LINES]
    phases = sorted(
        device.phases, key=lambda phase: -max(_known(phase.peak_allocated_bytes), default=0)
    )
    rows += [(phase.name, phase.peak_allocated_bytes) for phase in phases[:_MOST_PHASES]]
    _plot_pairs([(name, peak) for name, peak in rows if _known(peak)], ax)
    return ax


def plot_categories(device: DeviceComparison, ax: Axes | None = None) -> Axes:
    """Draw what was in use at the peak of A and of B, by category."""
    ax = axes_or_new(ax)
    order = sorted(device.category_bytes.items(), key=lambda item: -max(_known(item[1]), default=0))
    _plot_pairs([(words(name), size) for name, size in order], ax)
    return ax


def _plot_pairs(rows: Sequence[tuple[str, Difference]], ax: Axes) -> None:
    highest = max((max(_known(pair), default=0) for _, pair in rows), default=1)
    factor, unit = memory_unit(highest)
    for i, (_, pair) in enumerate(rows):
        known = [value / factor for value in _known(pair)]
        ax.plot([min(known), max(known)], [i, i], color=quiet(), linewidth=2.2, zorder=1)
        for side, value in (("A", pair.a), ("B", pair.b)):
            if value is not None:
                color = line_color(SIDE_COLORS[side])
                size = 9 if side == "A" else 6  # where they are equal, both are seen
                ax.plot([value / factor], [i], "o", color=color, markersize=size, clip_on=False)
        ax.annotate(
            _change(pair),
            xy=(max(known), i),
            xytext=(9, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=ink(),
        )
    dress(ax, grid="x")
    ax.set_yticks(range(len(rows)), [plain(name) for name, _ in rows])
    ax.set_ylim(max(len(rows), 4) - 0.5, -0.5)
    ax.set_xlim(0, max(highest, 1) / factor * 1.45)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
    ax.set_xlabel(f"memory ({unit})")


def plot_changes(device: DeviceComparison, ax: Axes | None = None) -> Axes:
    """Draw a bar for each size and phase of which a step allocates more or less in B."""
    ax = axes_or_new(ax)
    groups = device.groups[:_MOST_GROUPS]
    if not groups:
        say(ax, "a step makes the same allocations in A and in B")
        return ax
    changes = [group.change_bytes for group in groups]
    factor, unit = byte_unit(max(abs(change) for change in changes))
    colors = [line_color(SIDE_COLORS["B" if change > 0 else "A"]) for change in changes]
    ax.barh(range(len(groups)), [change / factor for change in changes], color=colors, height=0.7)
    low, high = min(0.0, *changes) / factor, max(0.0, *changes) / factor
    room = 0.75 * (high - low)
    ax.set_xlim(low - (room if low < 0 else 0), high + (room if high > 0 else 0))
    for i, (group, change) in enumerate(zip(groups, changes, strict=True)):
        ax.annotate(
            f"{group.a_per_step:,.3g} → {group.b_per_step:,.3g}",
            xy=(change / factor, i),
            xytext=(4 if change > 0 else -4, 0),
            textcoords="offset points",
            ha="left" if change > 0 else "right",
            va="center",
            fontsize=8.5,
            color=ink(),
        )
    sizes = [describe_sizes(group, with_count=False) for group in groups]
    names = [f"{size}, {g.phase or NO_PHASE}" for size, g in zip(sizes, groups, strict=True)]
    ax.set_yticks(range(len(groups)), [plain(name) for name in names])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(max(len(groups), 4) - 0.5, -0.5)
    dress(ax, grid="x")
    ax.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    ax.axvline(0, color=faint() if low < 0 < high else ink(), linewidth=0.8)
    ax.set_xlabel(f"{unit} per step (number A → B)")
    return ax


def _each_step(
    number: npt.NDArray[np.int64], count: npt.NDArray[np.int64], peak: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return a row for each step; those that are told as one have the peak of them all."""
    nth = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(number, count) + nth, np.repeat(peak, count)


def _side(side: str, facts: TraceFacts, found: Comparison) -> Line2D:
    summary: Summary = found.a if side == "A" else found.b
    times = found.step_time_s or Difference(None, None)
    time = times.a if side == "A" else times.b
    parts = [
        PurePath(facts.path).name if facts.path else "trace",
        describe_steps(facts.steps, facts.aged),
        *([f"median {format_duration(time)}"] if time is not None else []),
        *([f"simulated {summary.simulated.card}"] if summary.simulated else []),
    ]
    style: dict[str, Any] = {"color": line_color(SIDE_COLORS[side]), "marker": "o", "linewidth": 2}
    return Line2D([], [], label=plain(f"{side}: {', '.join(parts)}"), **style)


def _known(difference: Difference) -> list[float]:
    return [value for value in (difference.a, difference.b) if value is not None]


def _change(peak: Difference) -> str:
    if peak.a is None or peak.b is None:
        return f"only in {'A' if peak.b is None else 'B'}"
    if peak.share is None:
        return ""
    if not peak.change or abs(peak.share) < _MOST_SHARE:
        return "equal" if not peak.change else f"{peak.share:+.1%}"
    return f"+{format_bytes(peak.change)}"  # of next to nothing


def _finding(shown: Compared) -> str:
    if not shown.shown:
        return "Nothing was allocated"
    top = max(shown.shown, key=lambda one: max(_known(one.peaks["allocated"]), default=0))
    text = describe_difference(shown.found, top)
    return text if len(shown.shown) > 1 else text.partition(": ")[2]
