"""Long series over steps at the width of a picture: bands in which no high and no low is lost."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["StepBands", "find_highest_rows", "find_step_bands"]


@dataclass(frozen=True)
class StepBands:
    """Series (columns) over runs of consecutive steps (rows); float64, NaN = absent in all of them.

    ``number``: int64, the middle step of each run; ``low``, ``median``, ``high``: over the run's
    steps in which the series is present. ``is_exact``: every run is one step, and the three are
    the same.
    """

    number: npt.NDArray[np.int64]
    low: npt.NDArray[np.float64]
    median: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    is_exact: bool


def find_step_bands(
    number: npt.NDArray[np.int64], values: npt.NDArray[np.int64], *, most_rows: int
) -> StepBands:
    """Return ``values`` (steps, series; negative = absent) in at most ``most_rows`` runs of steps.

    Raises `ValueError` for less than one row.
    """
    edges = _edges(len(number), most_rows)
    known = np.where(values < 0, np.nan, values.astype(np.float64))
    bands = np.full((3, len(edges) - 1, values.shape[1]), np.nan)
    for row, (first, end) in enumerate(pairwise(edges.tolist())):
        part = known[first:end]
        present = ~np.isnan(part).all(axis=0)
        if present.any():
            mine = part[:, present]
            bands[:, row, present] = (
                np.nanmin(mine, axis=0),
                np.nanmedian(mine, axis=0),
                np.nanmax(mine, axis=0),
            )
    middle = number[(edges[:-1] + edges[1:] - 1) // 2]
    low, median, high = bands
    return StepBands(middle, low, median, high, is_exact=len(edges) == len(number) + 1)


def find_highest_rows(total: npt.NDArray[np.int64], *, most_rows: int) -> npt.NDArray[np.int64]:
    """Return of each of at most ``most_rows`` runs of rows the first one that is highest."""
    edges = _edges(len(total), most_rows)
    runs = pairwise(edges.tolist())
    return np.array([first + int(total[first:end].argmax()) for first, end in runs], np.int64)


def _edges(count: int, most_rows: int) -> npt.NDArray[np.int64]:
    if most_rows < 1:
        raise ValueError(f"most_rows must be at least 1, not {most_rows}")
    rows = min(count, most_rows)
    edges: npt.NDArray[np.int64] = np.arange(rows + 1, dtype=np.int64) * count // max(rows, 1)
    return edges
