"""Sizes: how large the allocations are, by number and by bytes.

Shows `gpumemtrace.analysis.allocation_histogram.AllocationHistogram` and computes nothing.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpumemtrace.analysis.allocation_histogram import (
    SIZE_EDGES_BYTES,
    AllocationHistogram,
)
from gpumemtrace.analysis.categories import CATEGORY_NAMES
from gpumemtrace.plot.by_device import ByDevice
from gpumemtrace.plot.frame import add_frame, axes_or_new, context_of, dress
from gpumemtrace.plot.histogram_panels import build, draw_panels
from gpumemtrace.plot.stacks import category_color, key_of, stack
from gpumemtrace.plot.style import CATEGORY_COLORS
from gpumemtrace.units import byte_unit, format_bytes

__all__ = ["build", "draw", "plot_sizes", "size_name"]

_FEWEST = 8


def draw(
    shown: ByDevice[AllocationHistogram], *, size_inches: tuple[float, float] | None = None
) -> Figure:
    """Return the whole figure: for each device how many allocations, and how many bytes."""
    figure, axes = draw_panels(
        shown,
        size_inches,
        panel_inches=3.2,
        draw_left=lambda result, ax: plot_sizes(result, ax, weight="allocs"),
        draw_right=lambda result, ax: plot_sizes(result, ax, weight="bytes"),
    )
    add_frame(
        figure,
        finding=_finding(shown),
        context=context_of(shown.facts, "every allocation counts, however short it lived"),
        handles=key_of(list(axes.ravel())),
    )
    return figure


def plot_sizes(
    result: AllocationHistogram,
    ax: Axes | None = None,
    *,
    weight: Literal["allocs", "bytes"] = "allocs",
) -> Axes:
    """Draw a histogram over sizes, stacked by category, of allocations or of their bytes."""
    ax = axes_or_new(ax)
    counts = (result.allocs if weight == "allocs" else result.size_bytes).sum(axis=1)
    used = np.flatnonzero(result.allocs.sum(axis=(1, 2)))
    first, end = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 1)
    first = max(min(first, end - _FEWEST), 0)  # a few bars are not as wide as the picture
    end = max(end, first + _FEWEST)
    factor, unit = (1, "") if weight == "allocs" else byte_unit(int(counts.sum(axis=1).max()))
    parts = {
        name: np.append(counts[first:end, CATEGORY_NAMES.index(name)], 0)
        for name in CATEGORY_COLORS
    }
    x = np.arange(first, end + 1) - 0.5
    stack(ax, x, parts, {name: category_color(name) for name in parts}, factor=factor)
    dress(ax)
    ax.set_xlim(first - 0.5, end - 0.5)
    ax.set_ylim(bottom=0)
    ax.set_xticks(
        range(first, end), [size_name(i) for i in range(first, end)], rotation=90, fontsize=8
    )
    ax.set_xlabel("size of an allocation, up to")
    ax.set_ylabel("allocations" if weight == "allocs" else f"allocated in all ({unit})")
    if weight == "allocs":
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    return ax


def size_name(row: int) -> str:
    """Return the name of a row of sizes: its upper edge."""
    if row >= len(SIZE_EDGES_BYTES):
        return "more"
    factor, unit = byte_unit(int(SIZE_EDGES_BYTES[row]))
    return f"{SIZE_EDGES_BYTES[row] // factor:,} {unit}"


def _finding(shown: ByDevice[AllocationHistogram]) -> str:
    found = [one for one in shown.found if one.total_allocs]
    if not found:
        return "Nothing was allocated"
    allocs = np.sum([one.allocs.sum(axis=(1, 2)) for one in found], axis=0)
    size_bytes = np.sum([one.size_bytes.sum(axis=(1, 2)) for one in found], axis=0)
    most = int(size_bytes.argmax())
    small = allocs[: int(np.searchsorted(SIZE_EDGES_BYTES, 1 << 20)) + 1].sum()
    share = size_bytes[most] / max(size_bytes.sum(), 1)
    return (
        f"{share:.0%} of the {format_bytes(int(size_bytes.sum()))} allocated in all are of "
        f"{_range_of(most)}; {small / allocs.sum():.0%} of {allocs.sum():,} allocations are of at "
        "most 1 MiB"
    )


def _range_of(row: int) -> str:
    if row == 0:
        return f"up to {size_name(0)}"
    if row >= len(SIZE_EDGES_BYTES):
        return f"more than {size_name(row - 1)}"
    return f"{size_name(row - 1)} to {size_name(row)}"
