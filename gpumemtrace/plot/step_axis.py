"""What figures over steps share: the axis, and lines with gaps that are read at 3 and at 3,000."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

__all__ = ["dress_steps", "marker_for"]

_MOST_MARKED = 40


def dress_steps(number: npt.NDArray[np.int64], ax: Axes, *, is_last: bool = True) -> None:
    """Show the steps ``number``, whole ones, and some room at both ends."""
    if len(number):
        first, last = int(number.min()), int(number.max())
        room = max((last - first) * 0.01, 0.4 if last - first < 40 else 0.0)
        ax.set_xlim(first - room, last + room)
    ax.xaxis.set_major_locator(
        MaxNLocator(nbins=12, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)
    )
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    if is_last:
        ax.set_xlabel("step")


def marker_for(values: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Return how to draw a series with gaps (NaN): a point that stands alone needs a marker."""
    known = ~np.isnan(values)
    joined = known[1:] & known[:-1]
    alone = int(known.sum()) - int(np.count_nonzero(joined)) > 0.3 * int(known.sum())
    if len(values) <= _MOST_MARKED:
        return {"marker": "o", "markersize": 4}
    return {"marker": "o", "markersize": 3, "linestyle": "none"} if alone else {}
