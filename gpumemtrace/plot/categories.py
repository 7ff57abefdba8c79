"""Categories: what the allocated memory was for, over wall-clock time.

Shows `gpumemtrace.analysis.category_timeline.CategoryTimeline` and computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpumemtrace.analysis.categories import CATEGORY_NAMES, find_categories
from gpumemtrace.analysis.category_timeline import CategoryTimeline, PlaceSampler, read_categories
from gpumemtrace.analysis.lines import feed_lines
from gpumemtrace.analysis.peaks import PeakFinder
from gpumemtrace.analysis.rest import NOT_SEEN, SUMMARISED
from gpumemtrace.analysis.timeline import Timeline, TimelineBuilder
from gpumemtrace.plot.by_device import NO_EVENTS
from gpumemtrace.plot.frame import (
    add_frame,
    axes_or_new,
    context_of,
    device_title,
    dress_memory,
    say,
)
from gpumemtrace.plot.phase_bands import plot_phases
from gpumemtrace.plot.stacks import category_color, key_of, stack, words
from gpumemtrace.plot.style import CATEGORY_COLORS
from gpumemtrace.plot.time_axis import (
    HEADROOM,
    event_handles,
    facts_of,
    mark_events,
    mark_peak,
    mark_steps,
    phase_handles,
    time_panels,
)
from gpumemtrace.trace_data import TraceData
from gpumemtrace.units import format_bytes

__all__ = ["CategoriesOverTime", "build", "draw", "plot_categories"]

_MOST_NAMED = 3


@dataclass(frozen=True)
class CategoriesOverTime:
    """``categories``: of the devices of ``timeline``, by number, in ``columns`` of time."""

    timeline: Timeline
    columns: int
    categories: dict[int, CategoryTimeline]


def build(
    trace: TraceData, *, devices: Sequence[int] | None = None, columns: int = 2000
) -> CategoriesOverTime:
    """Find the categories at the highest and the last record of each of ``columns``."""
    categories = find_categories(trace)
    places, peaks = PlaceSampler(trace, columns=columns), PeakFinder(trace)
    timeline = TimelineBuilder(trace, columns=columns)
    stream = feed_lines(trace, places, peaks, timeline)
    found = {one.device: one for one in read_categories(trace, places, categories)}
    return CategoriesOverTime(
        timeline=timeline.finish(stream, peaks.finish(stream), devices=devices),
        columns=columns,
        categories=found,
    )


def draw(shown: CategoriesOverTime, *, size_inches: tuple[float, float] | None = None) -> Figure:
    """Return the whole figure: a panel for each device, the phases below."""
    timeline = shown.timeline
    figure, axes = time_panels(timeline, size_inches=size_inches)
    if not timeline.devices:
        say(axes[0], NO_EVENTS)
    for device, ax in zip(timeline.devices, axes, strict=False):
        found = shown.categories.get(device.device)
        if device.peak is None or found is None:
            say(ax, f"no events on cuda:{device.device}: nothing was allocated there")
        else:
            plot_categories(found, ax, timeline=timeline, columns=shown.columns)
            factor = dress_memory(ax, int(found.allocated_bytes.max()), room=HEADROOM)
            mark_peak(device.peak, factor, ax)
            mark_events(timeline, device, ax)
        ax.set_title(device_title(device.device, device.facts), loc="left")
    panels = axes[: max(len(timeline.devices), 1)]
    if len(axes) > len(panels):
        plot_phases(timeline.phases, ax=axes[-1])
    mark_steps(timeline.step_number, timeline.step_start_ns, axes[0])
    add_frame(
        figure,
        finding=_finding(shown),
        context=context_of(facts_of(timeline)),
        handles=[*key_of(panels), *event_handles(timeline)],
        below=phase_handles(timeline.phases),
    )
    return figure


def plot_categories(
    result: CategoryTimeline,
    ax: Axes | None = None,
    *,
    timeline: Timeline | None = None,
    columns: int = 2000,
) -> Axes:
    """Stack what one device's memory was for, over seconds and MiB or GiB.

    ``timeline``: of the same trace, for where it begins and ends; ``columns``: of ``result``.
    """
    ax = axes_or_new(ax)
    factor = dress_memory(ax, max(int(result.allocated_bytes.max(initial=0)), 1))
    start_ns, end_ns = (
        (int(result.time_ns[0]), int(result.time_ns[-1]))
        if timeline is None
        else (timeline.start_ns, timeline.end_ns)
    )
    from_ns, row = result.envelope(start_ns, end_ns, columns=columns)
    seconds, row = np.append(from_ns, max(end_ns, from_ns[-1])) / 1e9, np.append(row, row[-1])
    # What is negative can't be stacked: see `gpumemtrace.analysis.rest`.
    parts = {NOT_SEEN: result.rest_bytes.clip(min=0)[row]}
    for name in CATEGORY_COLORS:
        parts[name] = result.category_bytes[row, CATEGORY_NAMES.index(name)]
    parts[SUMMARISED] = result.summarised_bytes.clip(min=0)[row]
    stack(ax, seconds, parts, {name: category_color(name) for name in parts}, factor=factor)
    return ax


def _finding(shown: CategoriesOverTime) -> str:
    peaks = [device.peak for device in shown.timeline.devices if device.peak is not None]
    if not peaks:
        return "Nothing was allocated"
    top = max(
        (shown.categories[d.device] for d in shown.timeline.devices if d.peak is not None),
        key=lambda one: int(one.allocated_bytes.max()),
    )
    row = int(top.allocated_bytes.argmax())
    total = max(int(top.allocated_bytes[row]), 1)
    order = np.argsort(-top.category_bytes[row], kind="stable")[:_MOST_NAMED]
    owners = ", ".join(
        f"{top.category_bytes[row, i] / total:.0%} {words(CATEGORY_NAMES[i])}"
        for i in order
        if top.category_bytes[row, i]
    )
    on = f" of cuda:{top.device}" if len(peaks) > 1 else ""
    return f"The peak{on}, {format_bytes(total)}: {owners or NOT_SEEN}"
