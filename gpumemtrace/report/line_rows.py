"""The lines of a device as rows (time, value of each line), as few as tell every column of M4."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["PARTS", "LineRows", "rows_of_columns"]

# A column has room for so many rows: its lowest, its highest, its last value.
PARTS = 4


@dataclass(frozen=True)
class LineRows:
    """``place``: int64, ascending, in quarters of a column; ``values``: line -> int64 bytes.

    A value holds from its row to the next one.
    """

    place: npt.NDArray[np.int64]
    values: dict[str, npt.NDArray[np.int64]]


def rows_of_columns(lines: Mapping[str, npt.NDArray[np.int64]]) -> LineRows:
    """Turn columns of first, lowest, highest and last value (``lines``: (columns, 4)) into rows.

    Columns in which nothing changes have none; what a column holds in order comes in order, and
    only an extreme between first and last value takes a row of its own.
    """
    columns = len(next(iter(lines.values()), ()))
    if not columns:
        return LineRows(np.zeros(0, np.int64), {name: np.zeros(0, np.int64) for name in lines})
    changes, dips, rises = np.zeros((3, columns), np.bool_)
    changes[[0, -1]] = True
    for line in lines.values():
        first, low, high, last = line.T
        dips |= low < np.minimum(first, last)
        rises |= high > np.maximum(first, last)
        changes |= first != last
    has_row = np.stack([_first_only(columns), dips, rises, changes | dips | rises], axis=1)
    place = np.flatnonzero(has_row)
    values = {}
    for name, line in lines.items():
        first, low, high, last = line.T
        lowest = np.where(low < np.minimum(first, last), low, first)
        highest = np.where(high > np.maximum(first, last), high, lowest)
        values[name] = np.stack([first, lowest, highest, last], axis=1).ravel()[place]
    return LineRows(place, values)


def _first_only(columns: int) -> npt.NDArray[np.bool_]:
    """The first value of all is the only one that is not the last value of another column."""
    mask = np.zeros(columns, np.bool_)
    mask[0] = True
    return mask
