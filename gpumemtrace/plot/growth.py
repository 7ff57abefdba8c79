"""Growth: what was in use at the end of each step, by where it was born, and what survives.

Shows `gpumemtrace.analysis.growth.DeviceGrowth` and computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpumemtrace.analysis.growth import DeviceGrowth, Growth, find_growth
from gpumemtrace.analysis.growth_wording import describe_growth
from gpumemtrace.analysis.step_bands import find_highest_rows
from gpumemtrace.plot.by_device import NO_EVENTS, ByDevice, figure_for, of_devices
from gpumemtrace.plot.contrast import mix
from gpumemtrace.plot.frame import (
    add_frame,
    axes_or_new,
    context_of,
    dress,
    dress_memory,
    say,
)
from gpumemtrace.plot.stacks import category_color, key_of, stack, words
from gpumemtrace.plot.step_axis import dress_steps
from gpumemtrace.plot.style import CATEGORY_COLORS, NO_PHASE, NO_PHASE_COLOR, WARNING
from gpumemtrace.plot.theme import ground, ink, line_color
from gpumemtrace.trace_data import TraceData
from gpumemtrace.units import byte_unit, format_bytes

__all__ = ["build", "draw", "plot_retained", "plot_survivors"]

_MOST_GROUPS = 8
_MOST_ROWS = 400


def build(
    trace: TraceData, *, devices: Sequence[int] | None = None, columns: int = 2000
) -> ByDevice[DeviceGrowth]:
    """Judge the growth of each device."""
    return of_devices(trace, find_growth(trace).devices, devices)


def draw(
    shown: ByDevice[DeviceGrowth], *, size_inches: tuple[float, float] | None = None
) -> Figure:
    """Return the whole figure: for each device what is kept over steps, and what survives."""
    figure, count = figure_for(shown, size_inches, panel_inches=3.3)
    axes = figure.subplots(count, 2, squeeze=False, width_ratios=[3.2, 1])
    if not shown.results:
        say(axes[0, 0], NO_EVENTS)
        say(axes[0, 1], "")
    notes: list[str] = []
    for (number, result), (left, right) in zip(shown.results.items(), axes, strict=False):
        left.set_title(shown.title_of(number), loc="left")
        if result is None or not len(result.retained.number):
            what = "no events" if result is None else "no completed step"
            say(left, f"{what} on cuda:{number}")
            say(right, "")
            continue
        plot_retained(result, left)
        plot_survivors(result, right)
        groups = len(result.retained.groups)
        if groups > _MOST_GROUPS:
            notes.append(f"showing {_MOST_GROUPS} of {groups} groups")
    add_frame(
        figure,
        finding=_finding(shown),
        context=context_of(shown.facts, *filter(None, [*notes[:1], _evidence(shown)])),
        handles=key_of(list(axes[:, 0])),
    )
    return figure


def plot_retained(result: DeviceGrowth, ax: Axes | None = None) -> Axes:
    """Stack what was in use at the end of each step, by phase and category of birth.

    The rate that was found is a dashed line over the steps that were judged.
    """
    ax = axes_or_new(ax)
    retained = result.retained
    total = retained.size_bytes.sum(axis=1)
    row = find_highest_rows(retained.number, total, most_rows=_MOST_ROWS)
    factor = dress_memory(ax, max(int(total.max(initial=0)), 1), room=0.1)
    ax.set_ylabel(ax.get_ylabel().replace("memory", "in use at the step's end"))
    highest = retained.size_bytes.max(axis=0)
    kept = np.argsort(-highest, kind="stable")[:_MOST_GROUPS].tolist()
    order = list(CATEGORY_COLORS)
    kept.sort(key=lambda i: (order.index(retained.groups[i].category), i))
    parts, colors = {}, {}
    used: dict[str, int] = {}
    for i in kept:
        group = retained.groups[i]
        name = f"{words(group.category)}, born in {group.phase or NO_PHASE}"
        nth = used[group.category] = used.get(group.category, -1) + 1
        parts[name] = retained.size_bytes[row, i]
        # Groups of one category are shades of its colour.
        colors[name] = mix(category_color(group.category), ground(), 0.3 * min(nth, 2))
    shown_bytes = np.sum([*parts.values()], axis=0)
    if (total[row] > shown_bytes).any():
        parts["others"], colors["others"] = total[row] - shown_bytes, NO_PHASE_COLOR
    x = retained.number[row]
    if len(x) <= 30:  # a step each
        x = np.append(x - 0.5, x[-1] + 0.5)
        parts = {name: np.append(part, part[-1]) for name, part in parts.items()}
    stack(ax, x, parts, colors, factor=factor, step="post" if len(x) <= 31 else "pre")
    dress_steps(retained.number, ax)
    _draw_rate(result, factor, ax)
    return ax


def _draw_rate(result: DeviceGrowth, factor: int, ax: Axes) -> None:
    if result.rate is None or result.first_step is None or result.verdict == "fragmentation":
        return
    number = result.retained.number
    total = result.retained.size_bytes.sum(axis=1)
    mine = number >= result.first_step
    x = number[mine]
    middle = float(np.median(total[mine] - result.rate.value * (x - x[0])))
    y = (middle + result.rate.value * (x - x[0])) / factor
    ax.plot(x[[0, -1]], y[[0, -1]], color=line_color(WARNING), linewidth=1.6, linestyle="--")
    ax.annotate(
        f"+{format_bytes(result.rate.value)} per step",
        xy=(x[-1], y[-1]),
        xytext=(-6, 12),
        textcoords="offset points",
        ha="right",
        color=ink(),
    )


def plot_survivors(result: DeviceGrowth, ax: Axes | None = None) -> Axes:
    """Draw how much of a step is still in use at the end, by how many steps ago it was."""
    ax = axes_or_new(ax)
    found = result.survivors
    factor, unit = byte_unit(max((one.bytes_per_step for one in found), default=0))
    place = range(len(found))
    ax.bar(place, [one.bytes_per_step / factor for one in found], color=line_color("#0072B2"))
    labels = [
        f"{one.youngest:,}" if one.youngest == one.oldest else f"{one.youngest:,}–{one.oldest:,}"
        for one in found
    ]
    ax.set_xticks(place, labels, rotation=90 if len(found) > 4 else 0)
    dress(ax)
    ax.set_xlabel("born so many steps ago")
    ax.set_ylabel(f"still in use, {unit} per step")
    ax.set_title("what survives of a step", loc="left")
    return ax


def _worst(shown: ByDevice[DeviceGrowth]) -> DeviceGrowth | None:
    return Growth(tuple(shown.found)).worst


def _finding(shown: ByDevice[DeviceGrowth]) -> str:
    worst = _worst(shown)
    if worst is None:
        return "Nothing was allocated"
    # The first sentence without its evidence, which is in the line below.
    parts = [describe_growth(worst).split("; ")[0].partition(" (")[0]]
    if worst.owners:
        owner = worst.owners[0]
        what = "" if owner.category == "unknown" else f"{words(owner.category)} "
        parts.append(f"{what}born in {owner.phase or NO_PHASE}")
    if worst.steps_until_full is not None:
        parts.append(f"full in {worst.steps_until_full:,} steps")
    text = "; ".join(parts)
    on = f" on cuda:{worst.device}" if len(shown.found) > 1 else ""
    return f"{text[:1].upper()}{text[1:]}{on}"


def _evidence(shown: ByDevice[DeviceGrowth]) -> str:
    worst = _worst(shown)
    if worst is None or worst.rate is None:
        return ""
    low, high = format_bytes(worst.rate.low), format_bytes(worst.rate.high)
    return (
        f"{worst.rate.confidence:.0%} between {low} and {high} per step, "
        f"Theil-Sen over steps {worst.from_step:,} to {worst.to_step:,}"
    )
