"""The timeline: memory of each device over wall-clock time, with phases, steps and the peak.

Shows a `gpumemtrace.analysis.timeline.Timeline` and computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpumemtrace.analysis.timeline import DeviceTimeline, Timeline, build_timeline
from gpumemtrace.plot.frame import (
    add_frame,
    axes_or_new,
    context_of,
    device_title,
    dress_memory,
    place_of,
    say,
)
from gpumemtrace.plot.phase_bands import plot_phases
from gpumemtrace.plot.style import LINE_STYLES
from gpumemtrace.plot.theme import ink, line_color
from gpumemtrace.plot.time_axis import (
    HEADROOM,
    event_handles,
    facts_of,
    mark_events,
    mark_peak,
    mark_steps,
    phase_handles,
    set_time_limits,
    time_panels,
)
from gpumemtrace.units import format_bytes

__all__ = ["build", "draw", "draw_timeline", "plot_device"]


def draw_timeline(timeline: Timeline, *, size_inches: tuple[float, float] | None = None) -> Figure:
    """Return the whole figure: a panel for each device, phases below, keys outside the data."""
    figure, axes = time_panels(timeline, size_inches=size_inches)
    if not timeline.devices:
        say(axes[0], "no events: this process allocated no CUDA memory")
    for device, ax in zip(timeline.devices, axes, strict=False):
        plot_device(timeline, device, ax=ax)
        ax.set_title(device_title(device.device, device.facts), loc="left")
    if len(axes) > max(len(timeline.devices), 1):
        plot_phases(timeline.phases, ax=axes[-1])
    mark_steps(timeline.step_number, timeline.step_start_ns, axes[0])
    add_frame(
        figure,
        finding=_finding(timeline),
        context=context_of(facts_of(timeline)),
        handles=[*_line_handles(axes[: len(timeline.devices)]), *event_handles(timeline)],
        below=phase_handles(timeline.phases),
    )
    return figure


def plot_device(timeline: Timeline, device: DeviceTimeline, ax: Axes | None = None) -> Axes:
    """Draw one device's lines, its peak, and what went wrong, over seconds and MiB or GiB."""
    ax = axes_or_new(ax)
    set_time_limits(timeline, ax)
    if device.peak is None:
        say(ax, f"no events on cuda:{device.device}: nothing was allocated there")
        return ax
    highest = max(int(line[:, 2].max()) for line in device.lines.values())
    factor = dress_memory(ax, highest, room=HEADROOM)
    for name, style in LINE_STYLES.items():
        if name in device.lines:
            x, y = _corners(timeline, device.lines[name])
            color = line_color(style.color)
            ax.plot(
                x,
                y / factor,
                style.dashes,
                color=color,
                linewidth=style.width,
                label=style.label,
                solid_joinstyle="round",
            )
            if name == "allocated":
                ax.fill_between(x, y / factor, color=color, alpha=0.25, linewidth=0)
    _mark_capacity(device, factor, ax)
    mark_peak(device.peak, factor, ax)
    mark_events(timeline, device, ax)
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


def _mark_capacity(device: DeviceTimeline, factor: int, ax: Axes) -> None:
    """Draw the device's capacity where it is near: else it would only press the lines down."""
    capacity = device.facts.capacity_bytes
    if capacity is not None and capacity / factor <= ax.get_ylim()[1] * 1.25:
        ax.set_ylim(top=max(ax.get_ylim()[1], capacity / factor * (1 + HEADROOM)))
        ax.axhline(capacity / factor, label="capacity", color=ink(), linewidth=0.8, linestyle="--")


def _line_handles(axes: Sequence[Axes]) -> list[Artist]:
    drawn = {line.get_label(): line for ax in axes for line in ax.lines}
    order = ["capacity", *(style.label for style in LINE_STYLES.values())]
    return [
        Line2D([], [], color=line.get_color(), ls=line.get_linestyle(), linewidth=2, label=label)
        for label in order
        if (line := drawn.get(label)) is not None
    ]


def _finding(timeline: Timeline) -> str:
    failures = [failure for device in timeline.devices for failure in device.out_of_memory]
    if failures:
        first = failures[0]
        where = place_of(first.phase, first.step)
        return f"Out of memory: {format_bytes(first.size_bytes)} could not be had in {where}"
    peaks = {device.device: device.peak for device in timeline.devices if device.peak is not None}
    if not peaks:
        return "Nothing was allocated"
    number, peak = max(peaks.items(), key=lambda item: item[1].size_bytes)
    on = f" on cuda:{number}" if len(peaks) > 1 else ""
    where = place_of(peak.phase, peak.step)
    return f"Memory peaks at {format_bytes(peak.size_bytes)}{on} in {where}"


build, draw = build_timeline, draw_timeline
