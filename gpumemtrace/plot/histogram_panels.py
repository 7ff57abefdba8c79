"""What the figures of allocation histograms share: the counting, and two panels a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpumemtrace.analysis.allocation_histogram import (
    AllocationHistogram,
    find_allocation_histograms,
)
from gpumemtrace.plot.by_device import NO_EVENTS, ByDevice, figure_for, of_devices
from gpumemtrace.plot.frame import say
from gpumemtrace.trace_data import TraceData

__all__ = ["build", "draw_panels"]


def build(
    trace: TraceData, *, devices: Sequence[int] | None = None, columns: int = 2000
) -> ByDevice[AllocationHistogram]:
    """Count the allocations of each device."""
    return of_devices(trace, find_allocation_histograms(trace), devices)


def draw_panels(
    shown: ByDevice[AllocationHistogram],
    size_inches: tuple[float, float] | None,
    *,
    panel_inches: float,
    draw_left: Callable[[AllocationHistogram, Axes], object],
    draw_right: Callable[[AllocationHistogram, Axes], object],
) -> tuple[Figure, Any]:
    """Return a figure with two panels for each device, and its axes, an array (devices, 2)."""
    figure, count = figure_for(shown, size_inches, panel_inches=panel_inches)
    axes = figure.subplots(count, 2, squeeze=False)
    if not shown.results:
        say(axes[0, 0], NO_EVENTS)
        say(axes[0, 1], "")
    for (number, result), (left, right) in zip(shown.results.items(), axes, strict=False):
        left.set_title(shown.title_of(number), loc="left")
        if result is None or not result.total_allocs:
            say(left, f"no events on cuda:{number}: nothing was allocated there")
            say(right, "")
            continue
        draw_left(result, left)
        draw_right(result, right)
    return figure, axes
