"""The timeline: memory of each device over wall-clock time, with phases, steps and the peak.

Shows a `gpumemtrace.analysis.timeline.Timeline` and computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from gpumemtrace.analysis.peaks import Peak
from gpumemtrace.analysis.timeline import DeviceTimeline, Timeline, build_timeline
from gpumemtrace.plot.flushes import FLUSH_STYLE, describe_flushes
from gpumemtrace.plot.phase_bands import plot_phases
from gpumemtrace.plot.style import INK, LINE_STYLES, QUIET, WARNING, memory_unit, phase_colors
from gpumemtrace.units import format_bytes, format_duration

__all__ = ["build", "draw", "draw_timeline", "plot_device"]

# Room above the highest line, as a part of its height: the peak's text stands there.
_HEADROOM = 0.16
_NOTE: dict[str, Any] = {"color": "#882255", "linewidth": 1.0, "linestyle": "-."}
_UNCERTAIN: dict[str, Any] = {
    "facecolor": "none",
    "edgecolor": QUIET,
    "hatch": "////",
    "linewidth": 0,
}
_CAPACITY: dict[str, Any] = {"color": INK, "linewidth": 0.8, "linestyle": "--"}
# How many letters of a legend an inch of the picture holds.
_LETTERS_PER_INCH = 12
# Of the width of the picture: between labels, between ticks of steps.
_LABEL_SPACE = 0.045
_TICK_SPACE = 0.003


def draw_timeline(timeline: Timeline, *, size_inches: tuple[float, float] | None = None) -> Figure:
    """Return the whole figure: a panel for each device, phases below, legends outside the data."""
    count = max(len(timeline.devices), 1)
    figure = Figure(figsize=size_inches or (12, 3.1 + 2.9 * count), layout="constrained")
    has_phases = len(timeline.phases.phase) > 0
    axes = figure.subplots(
        count + has_phases,
        1,
        sharex=True,
        squeeze=False,
        height_ratios=[1.0] * count + [0.13] * has_phases,
    )[:, 0]
    start, end = timeline.start_ns / 1e9, timeline.end_ns / 1e9
    axes[0].set_xlim(start, end if end > start else start + 1e-9)
    if not timeline.devices:
        _say(axes[0], "no events: this process allocated no CUDA memory")
    for device, ax in zip(timeline.devices, axes, strict=False):
        plot_device(timeline, device, ax=ax)
        ax.set_title(_device_title(device), loc="left", fontsize=9, color=INK)
    if has_phases:
        plot_phases(timeline.phases, ax=axes[-1])
    _mark_steps(timeline, axes[0])
    axes[-1].set_xlabel("time (s)")
    axes[-1].ticklabel_format(axis="x", useOffset=False)
    _add_legends(figure, timeline, list(axes))
    return figure


def plot_device(timeline: Timeline, device: DeviceTimeline, *, ax: Axes) -> Axes:
    """Draw one device's lines, its peak, and what went wrong, over seconds and MiB or GiB."""
    start, end = timeline.start_ns / 1e9, timeline.end_ns / 1e9
    ax.set_xlim(start, end if end > start else start + 1e-9)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.tick_params(colors=INK, labelsize=9)
    if device.peak is None:
        _say(ax, f"no events on cuda:{device.device}: nothing was allocated there")
        return ax
    highest = max(int(line[:, 2].max()) for line in device.lines.values())
    factor, unit = memory_unit(highest)
    for name, style in LINE_STYLES.items():
        if name in device.lines:
            x, y = _corners(timeline, device.lines[name])
            ax.plot(
                x,
                y / factor,
                style.dashes,
                color=style.color,
                linewidth=style.width,
                label=style.label,
                solid_joinstyle="round",
            )
            if name == "allocated":
                ax.fill_between(x, y / factor, color=style.color, alpha=0.25, linewidth=0)
    ax.set_ylim(0, max(highest / factor, 1e-9) * (1 + _HEADROOM))
    ax.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    ax.set_ylabel(f"memory ({unit})")
    ax.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    _mark_capacity(device, factor, ax)
    _mark_peak(timeline, device.peak, factor, ax)
    top = 1 / (1 + _HEADROOM)  # what marks a time leaves the headroom to the peak's text
    for failure in device.out_of_memory:
        at = failure.time_ns / 1e9
        ax.axvline(at, 0, top, color=WARNING, linewidth=1.0)
        ax.plot([at], [top], "v", color=WARNING, transform=ax.get_xaxis_transform(), clip_on=False)
    for flush in device.flushes:
        # At least as wide as a line: most take far less than a pixel of the picture.
        at, took = flush.time_ns / 1e9, flush.duration_ns / 1e9
        ax.axvspan(at, at + took, 0, top, **FLUSH_STYLE)
    for begin, finish in device.uncertain_ns / 1e9:
        ax.axvspan(begin, finish, 0, top, **_UNCERTAIN)
    for at, _ in timeline.notes:
        ax.axvline(at / 1e9, 0, top, **_NOTE)
    return ax


def _corners(
    timeline: Timeline, line: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return x (seconds) and y (bytes): first, lowest, highest, last at each column's middle."""
    width = (timeline.end_ns - timeline.start_ns) / len(line)
    middle = timeline.start_ns + (np.arange(len(line)) + 0.5) * width
    x = np.concatenate([[timeline.start_ns], np.repeat(middle, 4), [timeline.end_ns]]) / 1e9
    y = np.concatenate([line[:1, 0], line.ravel(), line[-1:, 3]]).astype(float)
    y[y < 0] = np.nan  # not sampled yet
    return x, y


def _mark_peak(timeline: Timeline, peak: Peak, factor: int, ax: Axes) -> None:
    x, y = peak.time_ns / 1e9, peak.size_bytes / factor
    color = LINE_STYLES["allocated"].color
    ax.plot([x], [y], "o", color=color, ms=5, markeredgecolor="white", zorder=5, clip_on=False)
    where = ", ".join(filter(None, [peak.phase, f"step {peak.step}"]))
    low, high = ax.get_xlim()
    # In the headroom, above every line; to the side of the peak where there is more room.
    is_left = x < (low + high) / 2
    ax.annotate(
        f"peak {format_bytes(peak.size_bytes)} allocated, {where}, at {format_duration(x)}",
        xy=(x, y),
        xytext=(x + (high - low) * (0.01 if is_left else -0.01), 0.985),
        textcoords=("data", "axes fraction"),
        ha="left" if is_left else "right",
        va="top",
        fontsize=9,
        color=INK,
        arrowprops={
            "arrowstyle": "-",
            "color": INK,
            "linewidth": 0.7,
            "shrinkA": 1,
            "shrinkB": 3,
            "relpos": (0.0 if is_left else 1.0, 0.5),
        },
    )


def _mark_capacity(device: DeviceTimeline, factor: int, ax: Axes) -> None:
    """Draw the device's capacity where it is near: else it would only press the lines down."""
    capacity = device.facts.capacity_bytes
    if capacity is not None and capacity / factor <= ax.get_ylim()[1] * 1.25:
        ax.set_ylim(top=max(ax.get_ylim()[1], capacity / factor * (1 + _HEADROOM)))
        ax.axhline(capacity / factor, label="capacity", **_CAPACITY)


def _mark_steps(timeline: Timeline, ax: Axes) -> None:
    number, at = timeline.step_number, timeline.step_start_ns / 1e9
    if not len(number):
        return
    low, high = ax.get_xlim()
    top = ax.secondary_xaxis("top")
    labelled = number % _stride(number, at, _LABEL_SPACE * (high - low)) == 0
    top.set_xticks(at[labelled])
    top.set_xticklabels([f"{n:,}" for n in number[labelled]], fontsize=8)
    if len(number) > 1 and float(np.median(np.diff(at))) > _TICK_SPACE * (high - low):
        top.set_xticks(at[~labelled], minor=True)
    top.set_xlabel("step", fontsize=8, color=QUIET)
    top.tick_params(colors=QUIET, which="both", pad=1)
    top.spines["top"].set_visible(False)


def _stride(number: npt.NDArray[np.int64], at: npt.NDArray[np.float64], least_space: float) -> int:
    """Return 1, 2, 5, 10, 20, … such that the labels of these steps do not touch."""
    magnitude = 1
    while magnitude <= max(int(number.max()), 1):
        for factor in (1, 2, 5):
            labelled = at[number % (factor * magnitude) == 0]
            if len(labelled) < 2 or float(np.diff(labelled).min()) >= least_space:
                return factor * magnitude
        magnitude *= 10
    return magnitude


def _add_legends(figure: Figure, timeline: Timeline, axes: Sequence[Axes]) -> None:
    drawn = {line.get_label() for ax in axes for line in ax.lines}
    handles: list[Any] = [
        Line2D([], [], color=s.color, ls=s.dashes, linewidth=2, label=s.label)
        for s in LINE_STYLES.values()
        if s.label in drawn
    ]
    if "capacity" in drawn:
        handles.insert(0, Line2D([], [], label="capacity", **_CAPACITY))
    failures = [failure for device in timeline.devices for failure in device.out_of_memory]
    if failures:
        first = failures[0]
        where = ", ".join(filter(None, [first.phase, f"step {first.step}"]))
        more = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
        label = f"out of memory: {format_bytes(first.size_bytes)} in {where}{more}"
        handles.append(Line2D([], [], color=WARNING, marker="v", label=label))
    if flushes := {flush for device in timeline.devices for flush in device.flushes}:
        handles.append(Patch(label=describe_flushes(flushes), **FLUSH_STYLE))
    if timeline.gaps or any(len(device.uncertain_ns) for device in timeline.devices):
        lost = sum(count for _, count in timeline.gaps)
        label = f"{lost:,} events lost: uncertain" if lost else "uncertain"
        handles.append(Patch(label=label, **_UNCERTAIN))
    if timeline.notes:
        label = timeline.notes[0][1] if len(timeline.notes) == 1 else f"{len(timeline.notes)} marks"
        handles.append(Line2D([], [], label=label, **_NOTE))
    # The title is the legend's own, so that the two never lie on each other.
    room = int(figure.get_figwidth() * _LETTERS_PER_INCH)
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=_columns_for([handle.get_label() for handle in handles], room),
        frameon=False,
        fontsize=9,
        title=_wrapped(_title(timeline), room),
        title_fontsize=11,
        alignment="left",
        borderpad=0.2,
    )
    colors = phase_colors(timeline.phases.names)
    used = np.unique(timeline.phases.phase)
    if len(used):
        figure.legend(
            handles=[
                Patch(color=colors[timeline.phases.names[i]], label=timeline.phases.names[i])
                for i in used
            ],
            loc="outside lower center",
            ncols=_columns_for([timeline.phases.names[i] for i in used], room),
            frameon=False,
            fontsize=9,
        )


def _columns_for(labels: Sequence[str], room: int) -> int:
    """Return how many columns of a legend fit side by side."""
    columns = len(labels)
    while columns > 1 and columns * (max(map(len, labels)) + 6) > room:
        if sum(len(label) + 6 for label in labels) <= room and columns == len(labels):
            break  # of unequal length, in one row
        columns -= 1
    return max(columns, 1)


def _wrapped(parts: Sequence[str], room: int) -> str:
    """Join the parts of a title, on as many lines as they need."""
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + 3 > room * 0.8:
            lines.append(part)
        else:
            lines[-1] += f"   {part}"
    return "\n".join(lines)


def _title(timeline: Timeline) -> list[str]:
    name = PurePath(timeline.path).name if timeline.path else "trace"
    duration = format_duration((timeline.end_ns - timeline.start_ns) / 1e9)
    steps = timeline.completed_steps
    parts = [name, f"{steps:,} step{'' if steps == 1 else 's'}", duration]
    if timeline.shown_records < timeline.all_records:
        parts.append(f"showing {timeline.shown_records:,} of {timeline.all_records:,} records")
    if timeline.simulated is not None:
        parts.append(f"simulated {timeline.simulated.gpu}")
    return parts


def _device_title(device: DeviceTimeline) -> str:
    parts = [f"cuda:{device.device}"]
    if device.facts.name:
        parts.append(device.facts.name)
    if device.facts.capacity_bytes:
        parts.append(format_bytes(device.facts.capacity_bytes))
    return "  ".join(parts)


def _say(ax: Axes, text: str) -> None:
    ax.set_yticks([])
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=QUIET)


build, draw = build_timeline, draw_timeline
