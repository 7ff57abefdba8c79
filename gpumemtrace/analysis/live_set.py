"""The blocks that are in use at one moment, and their bytes in groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.categories import CATEGORY_NAMES
from gpumemtrace.units import GIB, KIB, MIB, format_bytes

__all__ = ["GROUPINGS", "LiveGroup", "LiveKind", "LiveSet", "sum_groups"]

GROUPINGS = ("category", "phase", "step", "size", "size_class")

_SIZE_CLASSES = (
    (64 * KIB, "up to 64 KiB"),
    (MIB, "64 KiB to 1 MiB"),
    (16 * MIB, "1 to 16 MiB"),
    (256 * MIB, "16 to 256 MiB"),
    (GIB, "256 MiB to 1 GiB"),
)


@dataclass(frozen=True)
class LiveGroup:
    """Blocks of a kind: their bytes, and how many there are (None: these bytes are no blocks)."""

    name: str
    size_bytes: int
    blocks: int | None


@dataclass(frozen=True)
class LiveKind:
    """Blocks of one size and category: how many there are, and their bytes together."""

    block_bytes: int
    category: str
    blocks: int
    size_bytes: int


@dataclass(frozen=True)
class LiveSet:
    """One row per block in use, in order of birth.

    ``alloc`` int64, number of its alloc among those of the whole trace; ``address`` uint64;
    ``requested_bytes`` and ``allocated_bytes`` int64, as asked for and as the allocator's block
    (rounded up, with what it could not split off); ``birth_step`` int64; ``birth_phase`` int32,
    index into `Trace.phase_names`, -1 = none; ``category_id`` uint8, index into `CATEGORY_NAMES`;
    ``is_from_before`` bool: it was there when the recording began.
    """

    alloc: npt.NDArray[np.int64]
    address: npt.NDArray[np.uint64]
    requested_bytes: npt.NDArray[np.int64]
    allocated_bytes: npt.NDArray[np.int64]
    birth_step: npt.NDArray[np.int64]
    birth_phase: npt.NDArray[np.int32]
    category_id: npt.NDArray[np.uint8]
    is_from_before: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.alloc)

    def group_by(
        self, by: str, *, step: int, phase_names: tuple[str, ...], of_requests: bool = False
    ) -> tuple[LiveGroup, ...]:
        """Return the bytes of the blocks in groups, largest first.

        ``by``: one of `GROUPINGS`; ``step``: the one of the moment, for "this step" and "before".
        """
        size = self.requested_bytes if of_requests else self.allocated_bytes
        key: npt.NDArray[Any]
        names: Sequence[str]
        if by == "category":
            key, names = self.category_id.astype(np.int64), list(CATEGORY_NAMES)
        elif by == "phase":
            key, names = self.birth_phase.astype(np.int64) + 1, ["no phase", *phase_names]
        elif by == "step":
            key = np.select([self.is_from_before, self.birth_step < step], [2, 1], 0)
            names = [f"step {step}", f"before step {step}", "before the trace"]
        elif by == "size_class":
            edges = [edge for edge, _ in _SIZE_CLASSES]
            key = np.searchsorted(edges, size)
            names = [*(name for _, name in _SIZE_CLASSES), "above 1 GiB"]
        elif by == "size":
            sizes, key = np.unique(size, return_inverse=True)
            names = [f"{format_bytes(one)} ({one:,} B)" for one in sizes.tolist()]
        else:
            raise ValueError(f"by must be one of {', '.join(GROUPINGS)}, not {by!r}")
        return sum_groups(key, names, size)

    def bytes_from_earlier(self, category: str, *, step: int) -> int:
        """Return the allocated bytes of the blocks of ``category`` made before ``step``."""
        is_one = self.category_id == CATEGORY_NAMES.index(category)
        return int(self.allocated_bytes[is_one & (self.birth_step < step)].sum())

    def kinds(self, *, of_requests: bool = False) -> tuple[LiveKind, ...]:
        """Return the blocks by size and category, those with the most bytes first."""
        size = self.requested_bytes if of_requests else self.allocated_bytes
        pairs = np.stack([size, self.category_id.astype(np.int64)])
        (sizes, category), blocks = np.unique(pairs, axis=1, return_counts=True)
        kinds = [
            LiveKind(one, CATEGORY_NAMES[id], count, one * count)
            for one, id, count in zip(
                sizes.tolist(), category.tolist(), blocks.tolist(), strict=True
            )
        ]
        return tuple(sorted(kinds, key=lambda kind: (-kind.size_bytes, kind.category)))


def sum_groups(
    key: npt.NDArray[Any], names: Sequence[str], size_bytes: npt.NDArray[np.int64]
) -> tuple[LiveGroup, ...]:
    """Return blocks in groups, largest first; ``key``: index into ``names``, one per block."""
    blocks = np.bincount(key, minlength=len(names))
    total = np.zeros(len(names), np.int64)
    np.add.at(total, key, size_bytes)
    groups = [
        LiveGroup(names[i], int(total[i]), int(blocks[i])) for i in np.flatnonzero(blocks).tolist()
    ]
    return tuple(sorted(groups, key=lambda group: -group.size_bytes))
