"""Lifetimes: how long allocations live, by their bytes, and how size and lifetime go together.

Shows `gpumemtrace.analysis.allocation_histogram.AllocationHistogram` and computes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure

from gpumemtrace.analysis.allocation_histogram import (
    LIFETIME_EDGES_NS,
    AllocationHistogram,
)
from gpumemtrace.analysis.categories import CATEGORY_NAMES
from gpumemtrace.plot.by_device import ByDevice
from gpumemtrace.plot.contrast import mix
from gpumemtrace.plot.frame import add_frame, axes_or_new, context_of, dress
from gpumemtrace.plot.histogram_panels import build, draw_panels
from gpumemtrace.plot.sizes import size_name
from gpumemtrace.plot.stacks import category_color, key_of, stack
from gpumemtrace.plot.style import CATEGORY_COLORS
from gpumemtrace.plot.theme import ground, ink, line_color, quiet
from gpumemtrace.units import byte_unit, format_bytes, format_duration

__all__ = ["build", "draw", "plot_lifetimes", "plot_sizes_and_lifetimes"]

_ALIVE = len(LIFETIME_EDGES_NS) + 1


def draw(
    shown: ByDevice[AllocationHistogram], *, size_inches: tuple[float, float] | None = None
) -> Figure:
    """Return the whole figure: for each device the bytes by lifetime, and a map with the sizes."""
    figure, axes = draw_panels(
        shown,
        size_inches,
        panel_inches=3.6,
        draw_left=plot_lifetimes,
        draw_right=plot_sizes_and_lifetimes,
    )
    add_frame(
        figure,
        finding=_finding(shown),
        context=context_of(shown.facts, "alive: in use at the end"),
        handles=key_of(list(axes[:, 0])),
    )
    return figure


def plot_lifetimes(result: AllocationHistogram, ax: Axes | None = None) -> Axes:
    """Draw the bytes of allocations over how long they lived, stacked by category."""
    ax = axes_or_new(ax)
    columns = _Columns.of(result)
    counts = columns.choose(result.size_bytes.sum(axis=0).T)
    factor, unit = byte_unit(int(counts.sum(axis=0).max()))
    parts = {name: np.append(counts[CATEGORY_NAMES.index(name)], 0) for name in CATEGORY_COLORS}
    colors = {name: category_color(name) for name in parts}
    stack(ax, columns.edges, parts, colors, factor=factor)
    dress(ax)
    ax.set_ylim(bottom=0)
    ax.set_ylabel(f"allocated in all ({unit})")
    columns.dress(ax)
    return ax


def plot_sizes_and_lifetimes(result: AllocationHistogram, ax: Axes | None = None) -> Axes:
    """Draw a map of size over lifetime: the stronger, the more allocations, on a log scale."""
    ax = axes_or_new(ax)
    columns = _Columns.of(result)
    counts = columns.choose(result.allocs.sum(axis=2)).astype(float)
    used = np.flatnonzero(counts.sum(axis=1))
    low, high = int(used[0]), int(used[-1]) + 1
    blue = line_color("#0072B2")
    scale = [mix(blue, ground(), 0.75), blue, mix(blue, ink(), 0.6)]
    mesh = ax.pcolormesh(
        columns.edges,
        np.arange(low, high + 1) - 0.5,
        np.where(counts[low:high] == 0, np.nan, counts[low:high]),
        cmap=LinearSegmentedColormap.from_list("counts", scale),
        norm=LogNorm(1, max(float(counts.max()), 10)),
        linewidth=0,
        rasterized=True,
    )
    dress(ax, grid="")
    ticks = range(low, high, max((high - low) // 10, 1))
    ax.set_yticks(list(ticks), [size_name(i) for i in ticks])
    ax.set_ylabel("size of an allocation, up to")
    columns.dress(ax)
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02, aspect=30, label="allocations")
    bar.outline.set_visible(False)
    bar.ax.minorticks_off()
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    return ax


@dataclass(frozen=True)
class _Columns:
    """The columns ``first`` to ``end`` (exclusive) of lifetimes; behind a gap, those alive."""

    first: int
    end: int

    @classmethod
    def of(cls, result: AllocationHistogram) -> _Columns:
        """Return those that occur, and at least a decade."""
        used = np.flatnonzero(result.allocs.sum(axis=(0, 2))[:_ALIVE])
        first, end = (int(used[0]), int(used[-1]) + 1) if len(used) else (9, 12)
        return cls(first, min(max(end, first + 3), _ALIVE))

    def choose(self, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the columns of ``counts`` (its second axis), the gap, and those alive."""
        gap = np.zeros((len(counts), 1), np.int64)
        parts = [counts[:, self.first : self.end], gap, counts[:, _ALIVE:]]
        return np.concatenate(parts, axis=1)

    @property
    def edges(self) -> npt.NDArray[np.float64]:
        """Where each column begins, and where the last one ends."""
        return np.array([*range(self.first, self.end + 1), self.end + 0.5, self.end + 1.5])

    def dress(self, ax: Axes) -> None:
        """Name the edges, each third one: column i ends at ``LIFETIME_EDGES_NS[i]``."""
        named = [i for i in range(len(LIFETIME_EDGES_NS)) if self.first <= i + 1 < self.end]
        shown = [i for i in named if i % 3 == 0]
        ax.set_xticks(
            [*(i + 1 for i in shown), self.end + 1],
            [*(format_duration(LIFETIME_EDGES_NS[i] / 1e9) for i in shown), "alive"],
        )
        ax.set_xlim(self.first, self.end + 1.6)
        ax.set_xlabel("how long it lived (wall-clock time)")
        ax.axvline(self.end + 0.25, color=quiet(), linewidth=0.7, linestyle=":")


def _finding(shown: ByDevice[AllocationHistogram]) -> str:
    found = [one for one in shown.found if one.total_allocs]
    if not found:
        return "Nothing was allocated"
    by_lifetime = np.sum([one.allocs.sum(axis=(0, 2)) for one in found], axis=0)
    alive = int(by_lifetime[_ALIVE])
    bytes_alive = int(sum(one.size_bytes[:, _ALIVE].sum() for one in found))
    half = int(np.searchsorted(np.cumsum(by_lifetime), by_lifetime.sum() / 2))
    allocs = int(by_lifetime.sum())
    kept = f"{alive:,} of {allocs:,} allocations, {format_bytes(bytes_alive)}, are alive at the end"
    if half >= len(LIFETIME_EDGES_NS):
        return kept
    edge = format_duration(LIFETIME_EDGES_NS[half] / 1e9)
    return f"Half of all allocations live less than {edge}; {kept}"
