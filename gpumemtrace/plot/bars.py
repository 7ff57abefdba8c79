"""Horizontal bars with their figures written beside them, largest on top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from gpumemtrace.plot.frame import plain
from gpumemtrace.plot.theme import ink

__all__ = ["Bar", "draw_bars"]


@dataclass(frozen=True)
class Bar:
    """One bar: its name on the left, its figures in words on the right."""

    name: str
    value: float
    color: str
    text: str


def draw_bars(bars: Sequence[Bar], ax: Axes) -> None:
    """Draw them; x has room for the words and no ticks, since each bar tells its own figure."""
    place = list(range(len(bars)))
    ax.barh(place, [b.value for b in bars], color=[b.color for b in bars], height=0.72, linewidth=0)
    ax.set_ylim(max(len(bars), 6) - 0.5, -0.5)
    ax.set_yticks(place, [plain(bar.name) for bar in bars])
    ax.tick_params(axis="y", length=0)
    ax.set_xticks([])
    for side in ("top", "right", "bottom"):
        ax.spines[side].set_visible(False)
    ax.spines["left"].set_bounds(-0.5, max(len(bars), 1) - 0.5)
    highest = max((bar.value for bar in bars), default=0) or 1
    # The words stand behind the bars: the longest needs so much of the width.
    inches = ax.get_position().width * ax.figure.get_figwidth()  # type: ignore[union-attr]
    letters = max((len(bar.text) for bar in bars), default=0)
    share = min(letters * 0.078 / max(inches, 1e-6), 0.7)
    ax.set_xlim(0, highest / (1 - share))
    for i, bar in enumerate(bars):
        ax.annotate(
            plain(bar.text),
            xy=(bar.value, i),
            xytext=(4, 0),
            textcoords="offset points",
            ha="left",
            va="center",
            fontsize=8.5,
            color=ink(),
        )
