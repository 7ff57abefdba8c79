"""Fragmentation: a map of the allocator's memory by address and time, and what is free in it, why.

Shows `gpumemtrace.analysis.segment_map.SegmentMap` and
`gpumemtrace.analysis.cached_series.CachedSeries`, and computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gpumemtrace.analysis.fragmentation import Fragmentation, find_fragmentation
from gpumemtrace.analysis.segment_map import NOT_RESERVED, SegmentMap, find_segment_maps
from gpumemtrace.analysis.timeline import Timeline, build_timeline
from gpumemtrace.plot.by_device import NO_EVENTS, ByDevice, figure_for, of_devices
from gpumemtrace.plot.frame import (
    add_frame,
    axes_or_new,
    context_of,
    dress_memory,
    place_of,
    say,
)
from gpumemtrace.plot.stacks import key_of, stack
from gpumemtrace.plot.style import FREE_COLORS
from gpumemtrace.plot.theme import ground, ink, quiet
from gpumemtrace.plot.time_axis import mark_steps, set_time_limits
from gpumemtrace.trace_data import TraceData
from gpumemtrace.units import format_bytes, format_duration

__all__ = ["AddressesOverTime", "build", "draw", "plot_address_map", "plot_free"]

_USED, _STUCK, _IDLE = "#0072B2", FREE_COLORS["interleaved"], FREE_COLORS["idle"]
_UNKNOWN = "the trace does not tell of the allocator's segments (another recorder made it)"
# So many are told apart by lines.
_MOST_RANGES = 60
_COLUMNS, _ROWS, _PIXELS = 800, 400, 1600


@dataclass(frozen=True)
class AddressesOverTime:
    """One device. ``timeline``: of the same trace, for where it begins and ends, and its steps."""

    device: int
    map: SegmentMap
    found: Fragmentation
    timeline: Timeline


def build(
    trace: TraceData, *, devices: Sequence[int] | None = None, columns: int = 2000
) -> ByDevice[AddressesOverTime]:
    """Replay the segments of each device."""
    timeline = build_timeline(trace, columns=1)
    maps = find_segment_maps(trace, columns=min(columns, _COLUMNS), rows=_ROWS)
    parts = [
        AddressesOverTime(
            device=one.device,
            map=one,
            found=find_fragmentation(trace, device=one.device),
            timeline=timeline,
        )
        for one in maps
        if one.device in (trace.active_devices if devices is None else devices)
        and one.device in trace.active_devices
    ]
    return of_devices(trace, parts, devices)


def draw(
    shown: ByDevice[AddressesOverTime], *, size_inches: tuple[float, float] | None = None
) -> Figure:
    """Return the whole figure: for each device the map, and below it free memory by cause."""
    figure, count = figure_for(shown, size_inches, panel_inches=4.6)
    axes = figure.subplots(2 * count, 1, squeeze=False, height_ratios=[1.7, 1] * count)[:, 0]
    if not shown.results:
        say(axes[0], NO_EVENTS)
        say(axes[1], "")
    for i, (number, part) in enumerate(shown.results.items()):
        upper, lower = axes[2 * i], axes[2 * i + 1]
        upper.set_title(shown.title_of(number), loc="left")
        if part is None or not len(part.map.time_ns):
            why = "no events: nothing was allocated there" if part is None else _UNKNOWN
            say(upper, f"cuda:{number}: {why}")
            say(lower, "")
            continue
        plot_address_map(part.map, upper, end_ns=part.timeline.end_ns)
        plot_free(part.found, lower)
        for ax in (upper, lower):
            set_time_limits(part.timeline, ax)
            ax.ticklabel_format(axis="x", useOffset=False)
        upper.set_xlabel("")
        upper.tick_params(axis="x", labelbottom=False)
        mark_steps(part.timeline.step_number, part.timeline.step_start_ns, upper)
    is_known = any(len(part.map.time_ns) for part in shown.found)
    add_frame(
        figure,
        finding=_finding(shown),
        context=context_of(shown.facts),
        handles=_map_handles() if is_known else [],
        below=key_of(list(axes)),
    )
    return figure


def plot_address_map(
    result: SegmentMap, ax: Axes | None = None, *, end_ns: int | None = None
) -> Axes:
    """Draw segments by address (y, low to high, gaps left out) over seconds.

    A cell has the colours of what is in use, free and stuck, mixed by their bytes. ``end_ns``:
    until when the last state holds.
    """
    ax = axes_or_new(ax)
    total = float(result.range_bytes.sum())
    factor = dress_memory(ax, max(total, 1), room=0.0)
    start = int(result.time_ns[0])
    end = max(int(result.time_ns[-1]) if end_ns is None else end_ns, start + 1)
    # A state holds until the next one: which one each column of the picture shows.
    middle = start + (np.arange(_PIXELS) + 0.5) * (end - start) / _PIXELS
    column = np.maximum(np.searchsorted(result.time_ns, middle, side="right") - 1, 0)
    use, idle = result.use_percent[column].T / 100, result.idle_percent[column].T / 100
    picture = np.ones((*use.shape, 1)) * to_rgb(ground())
    for share, color in ((use, _USED), (idle, _IDLE), (1 - use - idle, _STUCK)):
        shown = np.where(use * 100 == NOT_RESERVED, 0, share.clip(0, 1))[..., np.newaxis]
        picture += shown * (np.array(to_rgb(color)) - to_rgb(ground()))
    ax.imshow(
        picture.clip(0, 1),
        extent=(start / 1e9, end / 1e9, 0, total / factor),
        aspect="auto",
        origin="lower",
        interpolation="nearest",
    )
    ax.set_ylim(0, max(total, 1) / factor)
    # Where the addresses of one range end, and those of another begin.
    edges = np.cumsum(result.range_bytes)[:-1] / factor
    if len(edges) <= _MOST_RANGES:
        ax.hlines(edges, start / 1e9, end / 1e9, color=ground(), linewidth=0.5)
    ax.grid(False)
    ax.set_ylabel(ax.get_ylabel().replace("memory", "addresses"))
    ax.set_xlabel("time (s)")
    return ax


def plot_free(result: Fragmentation, ax: Axes | None = None) -> Axes:
    """Stack what is reserved and not in use by cause, over seconds; mark the instant looked at."""
    ax = axes_or_new(ax)
    series = result.series
    factor = dress_memory(ax, max(int(series.cached.max(initial=0)), 1), room=0.25)
    ax.set_ylabel(ax.get_ylabel().replace("memory", "free"))
    parts = {name: series.free[name] for name in FREE_COLORS}
    stack(ax, series.time_ns / 1e9, parts, FREE_COLORS, factor=factor)
    ax.set_xlabel("time (s)")
    state = result.state
    at = state.time_ns / 1e9
    ax.axvline(at, color=ink(), linewidth=0.8, linestyle="--")
    low, high = ax.get_xlim()
    is_left = at < (low + high) / 2
    ax.annotate(
        f"{format_bytes(state.cached_bytes)} at {format_duration(at)}",
        xy=(at, 0.96),
        xycoords=("data", "axes fraction"),
        xytext=(5 if is_left else -5, 0),
        textcoords="offset points",
        ha="left" if is_left else "right",
        va="top",
        color=ink(),
    )
    return ax


def _map_handles() -> list[Artist]:
    return [
        Patch(facecolor=_USED, label="in use"),
        Patch(facecolor=_STUCK, label="free, between blocks in use"),
        Patch(facecolor=_IDLE, label="free, could be given back"),
        Patch(facecolor=ground(), edgecolor=quiet(), label="not reserved"),
    ]


def _finding(shown: ByDevice[AddressesOverTime]) -> str:
    if not shown.found:
        return "Nothing was allocated"
    known = [part.found for part in shown.found if part.found.known]
    if not known:
        return "The state of the allocator's segments is not known"
    worst = max(known, key=lambda one: one.state.cached_bytes - one.state.free_bytes["idle"])
    state = worst.state
    stuck = state.cached_bytes - state.free_bytes["idle"]
    on = f" on cuda:{worst.device}" if len(known) > 1 else ""
    return (
        f"At worst {format_bytes(stuck)} of {format_bytes(state.reserved_bytes)} reserved{on} are "
        f"stuck between blocks in use: {place_of(worst.phase, state.step)}"
    )
