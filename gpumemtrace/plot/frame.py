"""What all figures have in common: the finding in words on top, keys that cover no data, axes.

A figure is filled first; then `add_frame` puts the heading and the keys around it, measures them,
and leaves the rest to the panels.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from gpumemtrace.analysis.aged import describe_steps
from gpumemtrace.analysis.facts import DeviceFacts, TraceFacts
from gpumemtrace.analysis.flight_wording import describe_not_kept
from gpumemtrace.plot.style import memory_unit
from gpumemtrace.plot.theme import faint, ink, quiet
from gpumemtrace.units import format_bytes, format_count, format_duration

__all__ = [
    "add_frame",
    "axes_or_new",
    "context_of",
    "device_title",
    "dress",
    "dress_memory",
    "place_of",
    "plain",
    "say",
]

_Place = Literal["upper left", "lower left"]

_EDGE_INCHES = 0.12
_GAP_INCHES = 0.07
_FINDING_POINTS = 12.5
_CONTEXT_POINTS = 9.0
_FEWEST_LETTERS = 12
_LONGEST_TEXT = 200


def add_frame(
    figure: Figure,
    *,
    finding: str,
    context: str,
    handles: Sequence[Artist] = (),
    below: Sequence[Artist] = (),
) -> None:
    """Put ``finding`` and ``context`` and the key ``handles`` on top, ``below`` at the foot.

    Call it last: the panels get the room that is left.
    """
    width, height = figure.get_size_inches()
    at = 1 - _EDGE_INCHES / height
    left = _EDGE_INCHES / width
    for text, points, weight, color in (
        (finding, _FINDING_POINTS, "bold", ink()),
        (context, _CONTEXT_POINTS, "normal", quiet()),
    ):
        if text:
            drawn = figure.text(left, at, plain(text), fontsize=points, color=color, va="top")
            drawn.set_fontweight(weight)
            _wrap(drawn, 0.97 * (1 - left) * figure.bbox.width)
            at -= _height_of(figure, drawn) + _GAP_INCHES / height
    if handles:
        key = _fit_legend(figure, handles, "upper left", (left, at))
        at -= _height_of(figure, key)
    foot = _EDGE_INCHES / 2 / height
    if below:
        foot += _height_of(figure, _fit_legend(figure, below, "lower left", (left, foot)))
    figure.set_layout_engine("constrained", rect=(0, foot, 1, max(at - foot, 0.05)))


def _wrap(text: Text, room: float) -> None:
    """Break the lines of ``text`` such that it is at most ``room`` pixels wide."""
    words = text.get_text()
    letters = len(words)
    while text.get_window_extent().width > room and letters > _FEWEST_LETTERS:
        letters = int(0.97 * letters)
        text.set_text(textwrap.fill(words, letters, break_on_hyphens=False))


def _height_of(figure: Figure, artist: Any) -> float:
    return float(artist.get_window_extent().height / figure.bbox.height)


def _fit_legend(
    figure: Figure, handles: Sequence[Artist], place: _Place, at: tuple[float, float]
) -> Legend:
    """Return a legend of as many columns as fit side by side."""
    columns = len(handles)
    while True:
        legend: Legend = figure.legend(
            handles=list(handles),
            loc=place,
            bbox_to_anchor=at,
            ncols=columns,
            frameon=False,
            borderaxespad=0.0,
            borderpad=0.1,
            handlelength=1.6,
            columnspacing=1.5,
        )
        if columns == 1 or legend.get_window_extent().width <= 0.97 * figure.bbox.width:
            return legend
        legend.remove()
        columns -= 1


def context_of(facts: TraceFacts, *more: str) -> str:
    """Return what was traced in one line: the file, how much of it is shown, how it was run."""
    parts = [
        PurePath(facts.path).name if facts.path else "trace",
        describe_steps(facts.steps, facts.aged),
        format_duration(facts.duration_ns / 1e9),
    ]
    if facts.shown_records < facts.all_records:
        parts.append(f"showing {facts.shown_records:,} of {facts.all_records:,} records")
    if facts.simulated is not None:
        parts.append(f"simulated {facts.simulated.card}")
    if facts.flight is not None:
        parts.append(f"flight recording, {describe_not_kept(facts.flight)}")
    if facts.dropped_events:
        parts.append(f"{format_count(facts.dropped_events, 'event')} lost")
    return "   ".join([*parts, *more])


def device_title(number: int, facts: DeviceFacts | None) -> str:
    """Return ``cuda:0`` with its name and memory, as far as they are known."""
    parts = [f"cuda:{number}"]
    if facts is not None and facts.name:
        parts.append(plain(facts.name))
    if facts is not None and facts.capacity_bytes:
        parts.append(format_bytes(facts.capacity_bytes))
    return "  ".join(parts)


def place_of(phase: str | None, step: int) -> str:
    """Return ``backward, step 7``; without the phase outside of any."""
    return ", ".join(filter(None, [phase, f"step {step:,}"]))


def axes_or_new(ax: Axes | None) -> Axes:
    """Return ``ax``, or the axes of a new figure of pyplot's, for a notebook."""
    if ax is not None:
        return ax
    from matplotlib import pyplot as plt

    return plt.subplots(figsize=(9, 4), layout="constrained")[1]


def dress(ax: Axes, *, grid: str = "y") -> None:
    """Give a panel the common look: two spines, a faint grid below the data."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    if grid:
        ax.grid(axis=grid, color=faint(), linewidth=0.6)  # type: ignore[arg-type]
    ax.set_axisbelow(True)


def dress_memory(ax: Axes, highest_bytes: float, *, room: float = 0.05) -> int:
    """Dress a panel whose y is memory from 0 up; return the bytes of its unit.

    ``room``: above the highest value, as a part of it.
    """
    factor, unit = memory_unit(highest_bytes)
    dress(ax)
    ax.set_ylim(0, max(highest_bytes / factor, 1e-9) * (1 + room))
    ax.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    ax.set_ylabel(f"memory ({unit})")
    return factor


def say(ax: Axes, text: str) -> None:
    """Say in an empty panel why it is empty."""
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=quiet())


def plain(text: str) -> str:
    """Return ``text`` such that matplotlib takes nothing in it for a formula or a hidden label.

    Nor does a control character get into an SVG, which no browser would open, and of a text that
    no picture can hold only the beginning is drawn.
    """
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}…"
    text = "".join(c if c.isprintable() or c in "\n\u200b" else "\ufffd" for c in text)
    text = text.replace("$", r"\$")
    return f"\u200b{text}" if text.startswith("_") else text
