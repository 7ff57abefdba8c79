"""Areas stacked on one another, each part with its colour and name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Patch

from gpumemtrace.analysis.rest import NOT_SEEN
from gpumemtrace.plot.frame import plain
from gpumemtrace.plot.style import CATEGORY_COLORS, REST_COLORS
from gpumemtrace.plot.theme import ground

__all__ = ["category_color", "key_of", "stack", "words"]


def stack(
    ax: Axes,
    x: npt.NDArray[Any],
    parts: Mapping[str, npt.NDArray[Any]],
    colors: Mapping[str, str],
    *,
    factor: float = 1,
    step: Literal["pre", "post", "mid"] | None = "post",
) -> None:
    """Stack ``parts`` in their order, the first one lowest; those that are nowhere are left out."""
    bottom = np.zeros(len(x))
    for name, values in parts.items():
        if not values.any():
            continue
        top = bottom + values / factor
        ax.fill_between(
            x, bottom, top, step=step, color=colors[name], linewidth=0, label=plain(words(name))
        )
        bottom = top


def key_of(axes: Sequence[Axes]) -> list[Artist]:
    """Return the key to what `stack` drew there, what lies on top first."""
    found: dict[str, Patch] = {}
    for ax in axes:
        for area in reversed(ax.collections):
            label = str(area.get_label())
            if label and not label.startswith("_"):
                color = to_hex(np.asarray(area.get_facecolor())[0])
                found.setdefault(label, Patch(facecolor=color, edgecolor=ground(), label=label))
    return list(found.values())


def category_color(name: str) -> str:
    """Return the colour of a category, or of what is no block that the trace knows."""
    return (CATEGORY_COLORS | REST_COLORS).get(name, REST_COLORS[NOT_SEEN])


def words(name: str) -> str:
    """Return a name as people write it."""
    return name.replace("_", " ")
