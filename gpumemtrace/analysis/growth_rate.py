"""How fast memory grows from step to step, and whether it does.

Two kinds of evidence. **Survivors**: blocks born in each step that outlive all the others of their
kind; noise of the batches is not in them, as it dies. **The level**: bytes in use at the end of
each step, for growth without survivors (a buffer that is replaced by a larger one each step).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.retention import DeviceRetention
from gpumemtrace.analysis.trend import Slope, cycle_amplitude, find_regimes, theil_sen

__all__ = ["LEAST_RISES", "LEAST_STEPS", "Rate", "end_of_births", "find_rate", "find_reserved_rate"]

# Fewer steps after the warm-up tell nothing.
LEAST_STEPS = 8
# Growth in so many steps is a trend; in fewer, single events.
LEAST_RISES = 4
# Growth whose second half is below so much of its first is on its way to a plateau.
_FADES_BELOW = 0.25
# Blocks of a kind of which so many bytes died at the age of the survivors turn over: those that
# live now will die too (a list that is cleared every so many steps).
_TURNS_OVER_ABOVE = 0.25
_LEAST_SLACK_BYTES = 4 << 20

Bytes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rate:
    """Bytes per step from row ``start`` on; ``groups``: those that grow, the fastest first.

    ``fades``: it slowed down so much that it may stop by itself.
    """

    slope: Slope
    start: int
    groups: tuple[int, ...]
    has_survivors: bool
    fades: bool = False


def find_rate(kept: DeviceRetention, start: int) -> Rate | None:
    """Return the growth of what a device keeps from row ``start`` on; None = it doesn't grow."""
    total = kept.retained_bytes.sum(axis=1)
    level = theil_sen(kept.ordinal[start:], total[start:])
    survivors = _rate_of_survivors(kept, start)
    if survivors is not None:
        # Something else may shrink by as much: then the level surely doesn't rise.
        ordinal, level_since = kept.ordinal[survivors.start :], total[survivors.start :]
        since = theil_sen(ordinal, level_since, confidence=0.999)
        if since.high < survivors.slope.value / 2:
            survivors = None
    if not _is_rising(total, start, level):
        return survivors
    if survivors is not None and level.low < 1.2 * survivors.slope.value:
        return survivors
    groups = range(kept.retained_bytes.shape[1])
    by_group = [theil_sen(kept.ordinal[start:], kept.retained_bytes[start:, g]) for g in groups]
    growing = [g for g in groups if by_group[g].low > 0]
    growing.sort(key=lambda g: -by_group[g].value)
    fades = _fades(np.diff(total[start:]))
    return Rate(level, start, tuple(growing), has_survivors=False, fades=fades)


def find_reserved_rate(
    ordinal: npt.NDArray[np.int64], reserved: Bytes, peak: Bytes, start: int
) -> Rate | None:
    """Return the growth of reserved memory that no higher peak explains; None = there is none.

    ``reserved``: at the end of each step; ``peak``: the most that was in use during it.
    """
    slack = reserved - np.maximum.accumulate(peak)
    tail = slack[start:]
    rises = np.maximum(np.diff(tail), 0)
    rise = int(tail[-1] - tail[0])
    slope = theil_sen(ordinal[start:], tail)
    is_trend = (
        rise >= max(_LEAST_SLACK_BYTES, int(reserved[-1]) // 100)
        and np.count_nonzero(rises) >= LEAST_RISES
        and _is_rising(slack, start, slope)
    )
    if not is_trend or _fades(np.diff(tail)):
        return None
    return Rate(slope, start, (), has_survivors=False)


def _rate_of_survivors(kept: DeviceRetention, start: int) -> Rate | None:
    end = end_of_births(kept, start)
    slopes: dict[int, tuple[Slope, int]] = {}
    for group in range(kept.survivor_bytes.shape[1]):
        alive = kept.survivor_bytes[start:end, group]
        if np.count_nonzero(alive) < LEAST_RISES:
            continue
        # It may have begun later, too small to be seen in the level.
        total = np.cumsum(alive)
        begin = start + find_regimes(total, least_steps=LEAST_STEPS - 2)[-1]
        total = total[begin - start :]
        if len(total) < LEAST_STEPS - 2 or _turns_over(kept, group, begin, end):
            continue
        slope = theil_sen(kept.ordinal[begin:end], total)
        # What began only now is not known to go on.
        if slope.low > 0 and not _fades(np.diff(total)[::-1]):
            slopes[group] = (slope, begin)
    if not slopes:
        return None
    groups = sorted(slopes, key=lambda group: -slopes[group][0].value)
    value, low, high = (
        sum(getattr(slope, name) for slope, _ in slopes.values())
        for name in ("value", "low", "high")
    )
    slope = Slope(value, low, high, slopes[groups[0]][0].confidence)
    begin = slopes[groups[0]][1]
    born = kept.survivor_bytes[:, groups].sum(axis=1)
    # What was born before the first row ended is the level that growth starts from: a library's
    # workspace may be in it.
    fades = _fades(born[begin + 1 : end]) or _faded_before(born, begin, slope)
    return Rate(slope, begin, tuple(groups), has_survivors=True, fades=fades)


def end_of_births(kept: DeviceRetention, start: int) -> int:
    """Return the row from which on births are too young to be called survivors."""
    count = len(kept.ordinal)
    return count - max(1, (count - start) // 5)


def _turns_over(kept: DeviceRetention, group: int, start: int, end: int) -> bool:
    """Whether blocks of the group died at the age that its survivors have now."""
    oldest = int(kept.ordinal[-1] - kept.ordinal[start])
    age_bin = max((oldest // 2).bit_length() - 1, 0)
    freed_as_old = int(kept.freed_bytes[group, age_bin:].sum())
    return freed_as_old >= _TURNS_OVER_ABOVE * int(kept.survivor_bytes[start:end, group].sum())


def _faded_before(born: Bytes, start: int, slope: Slope) -> bool:
    """Whether the usual step of the first third added far more than those from ``start`` on."""
    early = born[: len(born) // 3]
    if start < len(early) or not len(early):
        return False
    return slope.value < _FADES_BELOW * float(np.median(early))


def _is_rising(level: Bytes, start: int, slope: Slope) -> bool:
    """Whether floor and ceiling rise, by more than was ever given back, and not in one go."""
    tail = level[start:]
    half = len(tail) // 2
    first, second = tail[:half], tail[half:]
    rise = slope.value * (len(tail) - 1)
    return bool(
        slope.low > 0
        and len(tail) >= LEAST_STEPS
        and second.min() > first.min()
        and second.max() > first.max()
        and rise > 2 * cycle_amplitude(level[1:])
        and np.diff(tail).max() < rise / 2
    )


def _fades(changes: npt.NDArray[np.int64]) -> bool:
    half = len(changes) // 2
    before, after = int(changes[:half].sum()), int(changes[half:].sum())
    return after < _FADES_BELOW * before
