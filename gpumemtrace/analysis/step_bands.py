"""Long series over steps at the width of a picture: bands in which no high and no low is lost."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["StepBands", "find_highest_rows", "find_highest_stretches", "find_step_bands"]


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
    edges = _edges(number, most_rows)
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
    first, last = number[edges[:-1]], number[edges[1:] - 1]
    missing = np.flatnonzero(first[1:] - last[:-1] > _widest_run(number, most_rows))
    middle = np.insert(middle, missing + 1, (last[missing] + first[missing + 1]) // 2)
    low, median, high = np.insert(bands, missing + 1, np.nan, axis=1)
    return StepBands(middle, low, median, high, is_exact=len(edges) == len(number) + 1)


def find_highest_rows(
    number: npt.NDArray[np.int64], total: npt.NDArray[np.int64], *, most_rows: int
) -> npt.NDArray[np.int64]:
    """Return of each of at most ``most_rows`` equal runs of steps the first row that is highest."""
    runs = pairwise(_edges(number, most_rows).tolist())
    return np.array([first + int(total[first:end].argmax()) for first, end in runs], np.int64)


def find_highest_stretches(
    number: npt.NDArray[np.int64], total: npt.NDArray[np.int64], *, most_rows: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return what to draw as stretches of steps: from which step on, and which row.

    Each run of `find_highest_rows` shows that row. Where no row begins in a run, the row before
    goes on: it stands for many steps.
    """
    edges, bounds = _edges(number, most_rows), _bounds(number, most_rows)
    starts = number[edges[:-1]]
    ends = bounds[np.searchsorted(bounds, starts, side="right").clip(max=len(bounds) - 1)]
    goes_on = ends < np.append(starts[1:], ends[-1:])
    at = np.concatenate([starts, ends[goes_on]])
    rows = np.concatenate(
        [find_highest_rows(number, total, most_rows=most_rows), edges[1:][goes_on] - 1]
    )
    order = np.argsort(at, kind="stable")
    return at[order], rows[order]


def _edges(number: npt.NDArray[np.int64], most_rows: int) -> npt.NDArray[np.int64]:
    """Return rows at which runs of steps begin, and the end: each run is as many steps long."""
    if most_rows < 1:
        raise ValueError(f"most_rows must be at least 1, not {most_rows}")
    count = len(number)
    if count <= most_rows:
        return np.arange(count + 1, dtype=np.int64)
    rising = np.maximum.accumulate(number)  # a user's numbers may go back
    found: npt.NDArray[np.int64] = np.unique(np.searchsorted(rising, _bounds(number, most_rows)))
    return found


def _widest_run(number: npt.NDArray[np.int64], most_rows: int) -> int:
    return int(np.diff(_bounds(number, most_rows)).max(initial=1))


def _bounds(number: npt.NDArray[np.int64], most_rows: int) -> npt.NDArray[np.int64]:
    """Return the numbers at which the runs begin, and the end."""
    if not len(number):
        return np.zeros(1, np.int64)
    first, end = int(number[0]), int(number.max()) + 1
    runs = max(min(end - first, most_rows), 1)
    return first + np.arange(runs + 1, dtype=np.int64) * (end - first) // runs
