"""What a step allocates more or less often in B than in A, by phase and size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpumemtrace.analysis.allocation_groups import AllocationGroup

__all__ = ["GroupDifference", "compare_groups"]

# A size of which not even every other step makes one comes and goes with the data.
_OCCASIONAL = 0.5
# So many such sizes between two powers of two are told one by one.
_FEW_SIZES = 4


@dataclass(frozen=True)
class GroupDifference:
    """Allocations of one size, or of ``sizes`` alike, in one phase: how many a step makes.

    ``size_bytes``, ``largest_size_bytes``: the smallest and the largest of them, the same but for
    sizes that come and go with the data (batches of variable length), which are told together.
    ``change_bytes``: the bytes that a step allocates more in B.
    """

    phase: str | None
    size_bytes: int
    largest_size_bytes: int
    sizes: int
    a_per_step: float
    b_per_step: float
    change_bytes: float

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return asdict(self)


@dataclass
class _Row:
    size_bytes: int
    a_per_step: float
    b_per_step: float


def compare_groups(
    device: int,
    a: Mapping[AllocationGroup, int],
    b: Mapping[AllocationGroup, int],
    *,
    a_steps: int,
    b_steps: int,
) -> tuple[GroupDifference, ...]:
    """Return what is not equal on a device, the largest change in bytes first.

    ``a``, ``b``: group -> number of allocations in so many completed steps.
    """
    classes: dict[tuple[str | None, int], list[_Row]] = {}
    found = []
    for group in sorted(a.keys() | b.keys(), key=lambda group: group.size_bytes):
        if group.device != device:
            continue
        row = _Row(
            group.size_bytes, a.get(group, 0) / max(a_steps, 1), b.get(group, 0) / max(b_steps, 1)
        )
        if max(row.a_per_step, row.b_per_step) < _OCCASIONAL:
            key = (group.phase, max(group.size_bytes - 1, 0).bit_length())
            classes.setdefault(key, []).append(row)
        else:
            found.append(_difference(group.phase, [row]))
    for (phase, _), rows in classes.items():
        if len(rows) > _FEW_SIZES:
            found.append(_difference(phase, rows))
        else:
            found += [_difference(phase, [row]) for row in rows]
    found = [difference for difference in found if difference.change_bytes]
    return tuple(sorted(found, key=lambda d: (-abs(d.change_bytes), d.phase or "", d.size_bytes)))


def _difference(phase: str | None, rows: list[_Row]) -> GroupDifference:
    return GroupDifference(
        phase=phase,
        size_bytes=min(row.size_bytes for row in rows),
        largest_size_bytes=max(row.size_bytes for row in rows),
        sizes=len(rows),
        a_per_step=sum(row.a_per_step for row in rows),
        b_per_step=sum(row.b_per_step for row in rows),
        change_bytes=sum((row.b_per_step - row.a_per_step) * row.size_bytes for row in rows),
    )
