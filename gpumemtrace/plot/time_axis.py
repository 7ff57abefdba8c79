"""What figures over wall-clock time share: steps on top, the peak, what went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gpumemtrace.analysis.aged import describe_ranges
from gpumemtrace.analysis.driver_time import Flush
from gpumemtrace.analysis.facts import TraceFacts
from gpumemtrace.analysis.peaks import Peak
from gpumemtrace.analysis.phase_bands import PhaseBands
from gpumemtrace.analysis.timeline import DeviceTimeline, Timeline
from gpumemtrace.plot.flushes import FLUSH_STYLE, describe_flushes
from gpumemtrace.plot.frame import place_of, plain
from gpumemtrace.plot.style import AGED_COLOR, LINE_STYLES, WARNING, phase_colors
from gpumemtrace.plot.theme import ground, ink, line_color, quiet
from gpumemtrace.units import format_bytes, format_count, format_duration

__all__ = [
    "HEADROOM",
    "event_handles",
    "facts_of",
    "mark_events",
    "mark_peak",
    "mark_steps",
    "phase_handles",
    "set_time_limits",
    "time_panels",
]

# Room above the highest line, as a part of its height: the peak's text stands there.
HEADROOM = 0.16
_NOTE_COLOR = "#882255"
# More marks or flushes than these would hide the lines: they are short ticks then, on the ground
# and under the ceiling.
_MOST_FULL_LINES = 24
_TICK = 0.03  # of the height of the panel
# Of the width of the picture: between labels, between ticks of steps.
_LABEL_SPACE = 0.045
_TICK_SPACE = 0.003


def time_panels(
    timeline: Timeline, *, size_inches: tuple[float, float] | None
) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure with a panel for each device and, if there are phases, one below for them."""
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
    set_time_limits(timeline, axes[0])
    axes[-1].set_xlabel("time (s)")
    axes[-1].ticklabel_format(axis="x", useOffset=False)
    return figure, list(axes)


def set_time_limits(timeline: Timeline, ax: Axes) -> None:
    """Show the whole of the trace or slice, in seconds."""
    start, end = timeline.start_ns / 1e9, timeline.end_ns / 1e9
    ax.set_xlim(start, end if end > start else start + 1e-9)


def facts_of(timeline: Timeline) -> TraceFacts:
    """Return what the heading tells."""
    return TraceFacts(
        path=timeline.path,
        simulated=timeline.simulated,
        steps=timeline.completed_steps,
        duration_ns=timeline.end_ns - timeline.start_ns,
        shown_records=timeline.shown_records,
        all_records=timeline.all_records,
        dropped_events=0,  # the key tells them
        flight=timeline.flight,
        aged=timeline.aged,
        devices={device.device: device.facts for device in timeline.devices},
    )


def mark_peak(peak: Peak, factor: int, ax: Axes) -> None:
    """Mark the peak, and tell of it in the headroom, to the side where there is more room."""
    x, y = peak.time_ns / 1e9, peak.size_bytes / factor
    color = line_color(LINE_STYLES["allocated"].color)
    ax.plot([x], [y], "o", color=color, ms=5, markeredgecolor=ground(), zorder=5, clip_on=False)
    low, high = ax.get_xlim()
    is_left = x < (low + high) / 2
    ax.annotate(
        plain(
            f"peak {format_bytes(peak.size_bytes)} allocated, {place_of(peak.phase, peak.step)}, "
            f"at {format_duration(x)}"
        ),
        xy=(x, y),
        xytext=(x + (high - low) * (0.01 if is_left else -0.01), 0.985),
        textcoords=("data", "axes fraction"),
        ha="left" if is_left else "right",
        va="top",
        color=ink(),
        arrowprops={
            "arrowstyle": "-",
            "color": ink(),
            "linewidth": 0.7,
            "shrinkA": 1,
            "shrinkB": 3,
            "relpos": (0.0 if is_left else 1.0, 0.5),
        },
    )


def mark_events(timeline: Timeline, device: DeviceTimeline, ax: Axes) -> None:
    """Mark failed requests, flushes, uncertain and summarised stretches and the user's notes."""
    top = 1 / (1 + HEADROOM)  # what marks a time leaves the headroom to the peak's text
    for failure in device.out_of_memory:
        at = failure.time_ns / 1e9
        ax.axvline(at, 0, top, color=WARNING, linewidth=1.0)
        ax.plot([at], [top], "v", color=WARNING, transform=ax.get_xaxis_transform(), clip_on=False)
    lowest = top - _TICK if len(device.flushes) > _MOST_FULL_LINES else 0
    for flush in device.flushes:
        # At least as wide as a line: most take far less than a pixel of the picture.
        at, took = flush.time_ns / 1e9, flush.duration_ns / 1e9
        ax.axvspan(at, at + took, lowest, top, **FLUSH_STYLE)
    for begin, finish in device.uncertain_ns / 1e9:
        ax.axvspan(begin, finish, 0, top, **_uncertain_style())
    for begin, finish in timeline.aged.span_ns / 1e9:
        ax.axvspan(begin, finish, 0, top, **_aged_style())
    are_many = len(timeline.notes) > _MOST_FULL_LINES
    ax.vlines(
        [at_ns / 1e9 for at_ns, _ in timeline.notes],
        0,
        _TICK if are_many else top,
        transform=ax.get_xaxis_transform(),
        **_note_style(are_many),
    )


def event_handles(timeline: Timeline) -> list[Artist]:
    """Return the key to what `mark_events` draws."""
    handles: list[Artist] = []
    failures = [failure for device in timeline.devices for failure in device.out_of_memory]
    if failures:
        first = failures[0]
        more = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
        where = place_of(first.phase, first.step)
        label = f"out of memory: {format_bytes(first.size_bytes)} in {where}{more}"
        handles.append(Line2D([], [], color=WARNING, marker="v", label=plain(label)))
    flushes: set[Flush] = {flush for device in timeline.devices for flush in device.flushes}
    if flushes:
        handles.append(Patch(label=plain(describe_flushes(flushes)), **FLUSH_STYLE))
    if timeline.gaps or any(len(device.uncertain_ns) for device in timeline.devices):
        lost = sum(count for _, count in timeline.gaps)
        label = f"{format_count(lost, 'event')} lost: uncertain" if lost else "uncertain"
        handles.append(Patch(label=label, **_uncertain_style()))
    if timeline.aged:
        detail = describe_ranges(timeline.aged.detailed, most=4)
        label = f"steps in summary only (in full detail: {detail})"
        handles.append(Patch(label=plain(label), **_aged_style()))
    if timeline.notes:
        label = timeline.notes[0][1] if len(timeline.notes) == 1 else f"{len(timeline.notes)} marks"
        are_many = len(timeline.notes) > _MOST_FULL_LINES
        handles.append(Line2D([], [], label=plain(label), **_note_style(are_many)))
    return handles


def phase_handles(phases: PhaseBands) -> list[Artist]:
    """Return the key to the colours of the phases that occur."""
    colors = phase_colors(phases.names)
    used = [phases.names[i] for i in np.unique(phases.phase)]
    return [Patch(color=colors[name], label=plain(name)) for name in used]


def mark_steps(number: npt.NDArray[np.int64], start_ns: npt.NDArray[np.int64], ax: Axes) -> None:
    """Put a tick on top where each step begins, and numbers as far as there is room."""
    at = start_ns / 1e9
    if not len(number):
        return
    low, high = ax.get_xlim()
    top = ax.secondary_xaxis("top")
    labelled = number % _stride(number, at, _LABEL_SPACE * (high - low)) == 0
    top.set_xticks(at[labelled])
    top.set_xticklabels([f"{n:,}" for n in number[labelled]], fontsize=8)
    if len(number) > 1 and float(np.median(np.diff(at))) > _TICK_SPACE * (high - low):
        top.set_xticks(at[~labelled], minor=True)
    top.set_xlabel("step", fontsize=8, color=quiet())
    top.tick_params(colors=quiet(), which="both", pad=1)
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


def _note_style(are_many: bool) -> dict[str, Any]:
    style = "-" if are_many else "-."
    return {"color": line_color(_NOTE_COLOR), "linewidth": 1.0, "linestyle": style}


def _aged_style() -> dict[str, Any]:
    return {"facecolor": line_color(AGED_COLOR), "alpha": 0.12, "linewidth": 0, "zorder": 0}


def _uncertain_style() -> dict[str, Any]:
    return {"facecolor": "none", "edgecolor": quiet(), "hatch": "////", "linewidth": 0}
