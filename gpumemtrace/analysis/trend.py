"""Slopes and changes of a series that outliers don't move: the statistics behind `find_growth`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

__all__ = ["Slope", "cycle_amplitude", "find_regimes", "theil_sen"]

# Theil-Sen looks at every pair, so longer series are thinned to so many points.
_MOST_POINTS = 400
# A change of regime must explain so much of what one line leaves over, and stand out of the noise
# by so many variances (the largest of many F statistics of pure noise stays below).
_MOST_LEFT = 0.5
_LEAST_VARIANCES = 30.0
# Differences below the allocator's granule mean nothing.
_LEAST_NOISE = 512.0
_SPIKE_WINDOW = 5

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Slope:
    """A Theil-Sen slope per step with its confidence interval (Sen's, from Kendall's tau)."""

    value: float
    low: float
    high: float
    confidence: float


def theil_sen(x: npt.ArrayLike, y: npt.ArrayLike, *, confidence: float = 0.95) -> Slope:
    """Return the median of the slopes of all pairs of points, with a confidence interval.

    Up to 29 % of the points may be anything. ``x`` ascends strictly; long series are thinned to
    medians of neighbours first. The interval takes the points for independent.
    Sen, "Estimates of the regression coefficient based on Kendall's tau", JASA 1968.

    Raises `ValueError` for fewer than two points.
    """
    xs, ys = _thinned(np.asarray(x, np.float64)), _thinned(np.asarray(y, np.float64))
    count = len(xs)
    if count < 2:
        raise ValueError(f"a slope needs at least 2 points, not {count}")
    first, second = np.triu_indices(count, 1)
    slopes = np.sort((ys[second] - ys[first]) / (xs[second] - xs[first]))
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    spread = z * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = max(math.floor((len(slopes) - spread) / 2), 0)
    high = min(math.ceil((len(slopes) + spread) / 2), len(slopes) - 1)
    return Slope(float(np.median(slopes)), float(slopes[low]), float(slopes[high]), confidence)


def _thinned(values: Floats) -> Floats:
    if len(values) <= _MOST_POINTS:
        return values
    edges = np.linspace(0, len(values), _MOST_POINTS + 1).astype(int)
    return np.array([np.median(values[first:end]) for first, end in pairwise(edges)])


def find_regimes(y: npt.ArrayLike, *, least_steps: int) -> list[int]:
    """Return the places at which another line begins to describe ``y``, ascending; the first is 0.

    Each place splits the rest in two where two lines leave least over, as long as two are clearly
    better than one; the last regime has at least ``least_steps`` points. Spikes of one or two
    points are no regime.
    """
    values = _without_spikes(np.asarray(y, np.float64))
    noise = _noise_of(values)
    starts = [0]
    while True:
        place, left, right, whole = _best_split(values[starts[-1] :], least_steps)
        is_clear = whole - (left + right) > _LEAST_VARIANCES * noise**2
        if place == 0 or not is_clear or left + right > _MOST_LEFT * whole:
            return starts
        starts.append(starts[-1] + place)


def cycle_amplitude(y: npt.ArrayLike) -> float:
    """Return the most that the series rose and then gave back again (0 for one that only rises)."""
    values = np.asarray(y, np.float64)
    if not len(values):
        return 0.0
    rise = values - np.minimum.accumulate(values)
    drop = values - np.minimum.accumulate(values[::-1])[::-1]
    return float(np.minimum(rise, drop).max())


def _without_spikes(values: Floats) -> Floats:
    """A running median; the ends stay as they are."""
    if len(values) < 2 * _SPIKE_WINDOW:
        return values
    windows = np.lib.stride_tricks.sliding_window_view(values, _SPIKE_WINDOW)
    smooth: Floats = values.copy()
    half = _SPIKE_WINDOW // 2
    smooth[half:-half] = np.median(windows, axis=1)
    return smooth


def _noise_of(values: Floats) -> float:
    """The standard deviation about a smooth line, from second differences, by their median."""
    if len(values) < 3:
        return _LEAST_NOISE
    median = float(np.median(np.abs(np.diff(values, 2))))
    return max(1.4826 * median / math.sqrt(6), _LEAST_NOISE)


def _best_split(values: Floats, least_right: int) -> tuple[int, float, float, float]:
    """Return where two lines fit best, what each leaves over (squared), and what one line does."""
    count = len(values)
    sums = _Sums(values)
    whole = float(sums.left_over(np.array([0]), np.array([count]))[0])
    places = np.arange(1, count - least_right + 1)
    if not len(places):
        return 0, 0.0, 0.0, whole
    left = sums.left_over(np.zeros_like(places), places)
    right = sums.left_over(places, np.full_like(places, count))
    best = int(np.argmin(left + right))
    return int(places[best]), float(left[best]), float(right[best]), whole


class _Sums:
    """Sums over any stretch of a series in constant time."""

    def __init__(self, values: Floats) -> None:
        x = np.arange(len(values), dtype=np.float64)
        # Centred and scaled, so that squares of gigabytes keep their digits.
        y = values - np.median(values)
        self._sums = [
            np.concatenate([[0.0], np.cumsum(part)])
            for part in (np.ones_like(x), x, y, x * x, x * y, y * y)
        ]

    def left_over(self, first: npt.NDArray[np.intp], end: npt.NDArray[np.intp]) -> Floats:
        """Return the squares that the best line over each stretch leaves over."""
        n, x, y, xx, xy, yy = (part[end] - part[first] for part in self._sums)
        sxx, sxy, syy = xx - x * x / n, xy - x * y / n, yy - y * y / n
        with np.errstate(divide="ignore", invalid="ignore"):
            explained = np.where(n > 1, sxy * sxy / sxx, 0.0)
        result: Floats = np.maximum(syy - np.nan_to_num(explained), 0.0)
        # What rounding leaves of an exact fit is nothing.
        result[result < 1e-9 * yy] = 0.0
        return result
