"""Who grows: the blocks behind a rate, and the step in which it began."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.categories import CATEGORY_NAMES
from gpumemtrace.analysis.growth_rate import LEAST_RISES, Rate, end_of_births
from gpumemtrace.analysis.retention import DeviceRetention
from gpumemtrace.analysis.trend import theil_sen

__all__ = ["Keeper", "Owner", "find_first_row", "find_owners"]

# What grows by less of the whole is not named.
_LEAST_SHARE = 0.05
# A size stands for its group if it makes up so much of it.
_MAIN_SHARE = 0.5


@dataclass(frozen=True)
class Keeper:
    """The module or line that made most of the blocks that stay.

    ``blocks`` of them are its own; of ``known`` among ``of_blocks`` the trace tells whose they are.
    """

    name: str
    blocks: int
    known: int
    of_blocks: int

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return asdict(self)


@dataclass(frozen=True)
class Owner:
    """What grows: blocks born in one phase.

    ``category``: of most of them, by bytes. ``size_bytes``: their most frequent size by bytes, as
    allocated; ``blocks_per_step``: how many of that size a step adds; ``thread``: the one that made
    most of them. All three are None where no block stays (one is replaced by a larger one each
    step). ``module``, ``line``: who allocated them, None where the trace does not tell. ``allocs``:
    int64, the blocks of that size that a growing run keeps, numbers among the trace's allocs.
    """

    phase: str | None
    category: str
    bytes_per_step: float
    size_bytes: int | None
    blocks_per_step: float | None
    thread: int | None
    module: Keeper | None = None
    line: Keeper | None = None
    allocs: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(0, np.int64), compare=False, repr=False
    )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return {
            "phase": self.phase,
            "category": self.category,
            "bytes_per_step": self.bytes_per_step,
            "size_bytes": self.size_bytes,
            "blocks_per_step": self.blocks_per_step,
            "thread": self.thread,
            "module": None if self.module is None else self.module.to_dict(),
            "site": None if self.line is None else self.line.to_dict(),
        }


def find_owners(kept: DeviceRetention, rate: Rate, first_row: int) -> tuple[Owner, ...]:
    """Return what makes up ``rate``, the fastest first; ``first_row``: see `find_first_row`."""
    owners = []
    for group in rate.groups:
        series = np.cumsum(kept.survivor_bytes[:, group])
        if not rate.has_survivors:
            series = kept.retained_bytes[:, group]
        end = end_of_births(kept, rate.start) if rate.has_survivors else len(kept.ordinal)
        slope = theil_sen(kept.ordinal[rate.start : end], series[rate.start : end]).value
        if slope < _LEAST_SHARE * rate.slope.value:
            continue
        size = blocks = thread = None
        allocs = np.zeros(0, np.int64)
        if rate.has_survivors:
            main = _main_blocks(kept, rate, group, max(rate.start, first_row))
            size, blocks, thread, allocs = main
        category = _main_category(kept, rate, group)
        phase = kept.groups[group].phase
        owners.append(Owner(phase, category, slope, size, blocks, thread, allocs=allocs))
    return tuple(owners)


def find_first_row(kept: DeviceRetention, rate: Rate) -> int:
    """Return the row of the step in which the growth began.

    Backwards from the steps that were judged, as long as births of survivors go on as densely.
    """
    if not rate.has_survivors:
        return rate.start
    group = rate.groups[0]
    born = kept.survivor_bytes[:, group].copy()
    size, *_ = _main_blocks(kept, rate, group, rate.start)
    mine = (kept.live["group"] == group) & (kept.live["size_bytes"] == size)
    of_size = _per_row(kept, mine)
    end = end_of_births(kept, rate.start)
    if of_size[rate.start : end].sum() >= _MAIN_SHARE * born[rate.start : end].sum():
        born = of_size
    births = np.flatnonzero(born[:end])
    judged = births[births >= rate.start]
    first, widest = int(judged[0]), int(np.diff(judged, prepend=judged[0]).max())
    for row in births[births < first][::-1].tolist():
        if first - row > max(widest, 1):
            break
        first = row
    return first


def _per_row(kept: DeviceRetention, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> Any:
    rows = np.searchsorted(kept.ordinal, kept.live["ordinal"][chosen])
    bytes_of = np.zeros(len(kept.ordinal) + 1, np.int64)
    np.add.at(bytes_of, rows, kept.live["size_bytes"][chosen])
    return bytes_of[:-1]


def _main_category(kept: DeviceRetention, rate: Rate, group: int) -> str:
    """That of most bytes among the blocks in use that were born while it grew."""
    ordinal = kept.live["ordinal"]
    mine = (kept.live["group"] == group) & (ordinal >= kept.ordinal[rate.start])
    if rate.has_survivors:
        # Neither what the first row began with, nor what is still young.
        last = kept.ordinal[end_of_births(kept, rate.start) - 1]
        mine &= (ordinal > kept.ordinal[rate.start]) & (ordinal <= last)
    sums = np.bincount(
        kept.live["category"][mine], kept.live["size_bytes"][mine], len(CATEGORY_NAMES)
    )
    return CATEGORY_NAMES[int(np.argmax(sums))]


def _main_blocks(
    kept: DeviceRetention, rate: Rate, group: int, first_row: int
) -> tuple[int, float, int, npt.NDArray[np.int64]]:
    """The size of most bytes, how many of it a step adds, their main thread, and their allocs.

    A size that comes in few steps (a library's workspace) counts only where none comes in more.
    """
    first, last = kept.ordinal[first_row], kept.ordinal[end_of_births(kept, rate.start) - 1]
    ordinal = kept.live["ordinal"]
    mine = (kept.live["group"] == group) & (ordinal >= first) & (ordinal <= last)
    sizes, index = np.unique(kept.live["size_bytes"][mine], return_inverse=True)
    counts = np.bincount(index)
    births = np.unique(np.stack([index, ordinal[mine]]), axis=1)[0]
    recurs = np.bincount(births) >= LEAST_RISES
    main = int(np.argmax(counts * sizes * (recurs if recurs.any() else 1)))
    threads = np.bincount(kept.live["thread"][mine][index == main])
    per_step = counts[main] / int(last - first + 1)
    allocs = np.sort(kept.live["alloc"][mine][index == main])
    return int(sizes[main]), float(per_step), int(np.argmax(threads)), allocs
