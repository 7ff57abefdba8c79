"""Phases: how high each went in each step.

Shows `gpumemtrace.analysis.step_phases.StepPhases` and computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpumemtrace.analysis.step_bands import find_step_bands
from gpumemtrace.analysis.step_phases import StepPhases, find_step_phases
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
from gpumemtrace.plot.step_axis import dress_steps, marker_for
from gpumemtrace.plot.style import NO_PHASE, NO_PHASE_COLOR, phase_colors
from gpumemtrace.plot.theme import line_color
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData
from gpumemtrace.units import format_bytes

__all__ = ["build", "draw", "plot_step_phases"]

# More lines than this can't be told apart: the lowest are left out, and it is said.
_MOST_PHASES = 10
# Of more steps, each run of steps is a median and a band from its lowest to its highest.
_MOST_ROWS = 120


def build(
    trace: TraceData, *, devices: Sequence[int] | None = None, columns: int = 2000
) -> ByDevice[StepPhases]:
    """Find the peaks of the completed steps, and of one in which a request failed."""
    kept = {*trace.steps.number.tolist(), *trace.records(Kind.ALLOC_FAILED)["step"].tolist()}
    found = []
    for one in find_step_phases(trace):
        is_kept = np.isin(one.number, list(kept))
        found.append(one.rows(np.flatnonzero(is_kept)) if is_kept.any() else one)
    return of_devices(trace, found, devices)


def draw(shown: ByDevice[StepPhases], *, size_inches: tuple[float, float] | None = None) -> Figure:
    """Return the whole figure: a panel for each device, a line for each phase."""
    figure, count = figure_for(shown, size_inches)
    axes = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    if not shown.results:
        say(axes[0], NO_EVENTS)
    notes = []
    handles: dict[str, Line2D] = {}
    for (number, result), ax in zip(shown.results.items(), axes, strict=False):
        if result is None or result.highest is None:
            say(ax, f"no events on cuda:{number}: nothing was allocated there")
        else:
            plot_step_phases(result, ax, is_last=ax is axes[-1])
            phases = np.count_nonzero((result.peak_allocated_bytes >= 0).any(axis=0))
            if phases > len(ax.lines):
                notes.append(f"showing {len(ax.lines)} of {phases} phases")
            if ax.collections:
                notes.append("line: median of neighbouring steps, band: lowest to highest")
        ax.set_title(shown.title_of(number), loc="left")
        for line in ax.lines:
            label = str(line.get_label())
            style = {"linewidth": 2, "marker": line.get_marker(), "ls": line.get_linestyle()}
            handles[label] = Line2D([], [], color=line.get_color(), label=label, **style)
    add_frame(
        figure,
        finding=_finding(shown),
        context=context_of(shown.facts, *dict.fromkeys(notes)),
        handles=list(handles.values()),
    )
    return figure


def plot_step_phases(result: StepPhases, ax: Axes | None = None, *, is_last: bool = True) -> Axes:
    """Draw a line for each phase: its peak in each step in which it was open.

    Of more than 120 steps the line is the median of each run of steps, with a band around it.

    ``is_last``: name the axis of steps.
    """
    ax = axes_or_new(ax)
    peaks = result.peak_allocated_bytes
    factor = dress_memory(ax, max(int(peaks.max(initial=0)), 1))
    colors = phase_colors(result.names) | {NO_PHASE: NO_PHASE_COLOR}
    names = [*result.names, NO_PHASE]
    highest = peaks.max(axis=0, initial=-1)
    shown = sorted(np.argsort(-highest, kind="stable")[:_MOST_PHASES].tolist())
    bands = find_step_bands(result.number, peaks, most_rows=_MOST_ROWS)
    for i in shown:
        if highest[i] < 0:
            continue
        color = line_color(colors[names[i]])
        y = bands.median[:, i] / factor
        label = plain(names[i])
        ax.plot(bands.number, y, color=color, linewidth=1.2, label=label, **marker_for(y))
        if not bands.is_exact:
            low, high = bands.low[:, i] / factor, bands.high[:, i] / factor
            ax.fill_between(bands.number, low, high, color=color, alpha=0.18, linewidth=0)
    dress_steps(result.number, ax, is_last=is_last)
    ax.set_ylabel(ax.get_ylabel().replace("memory", "peak allocated"))
    return ax


def _finding(shown: ByDevice[StepPhases]) -> str:
    found = [(one.highest, one) for one in shown.found if one.highest is not None]
    if not found:
        return "Nothing was allocated"
    (size_bytes, step, phase), top = max(found, key=lambda pair: pair[0][0])
    on = f" on cuda:{top.device}" if len(found) > 1 else ""
    what = f"{phase} sets the peak" if phase else "The peak lies outside of any phase"
    return f"{what}{on}: {format_bytes(size_bytes)} in {place_of(None, step)}"
