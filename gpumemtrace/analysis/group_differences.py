"""What a step allocates more or less often in B than in A, by phase and size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpumemtrace.analysis.allocation_groups import AllocationGroup, GroupUse

__all__ = ["GroupDifference", "compare_groups"]

# A size that not even every other step makes comes and goes with the data.
_OCCASIONAL = 0.5
# So many such sizes between two powers of two are told one by one.
_FEW_SIZES = 4
_UNUSED = GroupUse(0, 0)
_Where = tuple[str | None, str | None]
"""Phase and owner."""


@dataclass(frozen=True)
class GroupDifference:
    """Allocations of one size, or of ``sizes`` alike, in one phase: how many a step makes.

    ``size_bytes``, ``largest_size_bytes``: the smallest and the largest of them, the same but for
    sizes that come and go with the data (batches of variable length), which are told together.
    ``change_bytes``: the bytes that a step allocates more in B. ``owner``: the module or line that
    makes them, None where it was not asked for.
    """

    phase: str | None
    size_bytes: int
    largest_size_bytes: int
    sizes: int
    a_per_step: float
    b_per_step: float
    change_bytes: float
    owner: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return asdict(self)


@dataclass
class _Row:
    size_bytes: int
    a_count: int
    b_count: int


def compare_groups(
    device: int,
    a: Mapping[AllocationGroup, GroupUse],
    b: Mapping[AllocationGroup, GroupUse],
    *,
    a_steps: int,
    b_steps: int,
) -> tuple[GroupDifference, ...]:
    """Return what is not equal on a device, the largest change in bytes first.

    ``a``, ``b``: how each group is used, in so many completed steps.
    """
    steps_a, steps_b = max(a_steps, 1), max(b_steps, 1)
    classes: dict[tuple[_Where, int], list[_Row]] = {}
    rows_of: list[tuple[_Where, list[_Row]]] = []
    for group in a.keys() | b.keys():
        if group.device != device:
            continue
        of_a, of_b = a.get(group, _UNUSED), b.get(group, _UNUSED)
        where = (group.phase, group.owner)
        row = _Row(group.size_bytes, of_a.count, of_b.count)
        if max(of_a.steps / steps_a, of_b.steps / steps_b) < _OCCASIONAL:
            key = (where, max(group.size_bytes - 1, 0).bit_length())
            classes.setdefault(key, []).append(row)
        else:
            rows_of.append((where, [row]))
    for (where, _), rows in classes.items():
        few = len(rows) <= _FEW_SIZES
        rows_of += [(where, [row]) for row in rows] if few else [(where, rows)]
    found = [_difference(where, rows, steps_a, steps_b) for where, rows in rows_of]
    found = [difference for difference in found if difference.change_bytes]

    def order(d: GroupDifference) -> tuple[float, str, str, int]:
        return (-abs(d.change_bytes), d.phase or "", d.owner or "", d.size_bytes)

    return tuple(sorted(found, key=order))


def _difference(where: _Where, rows: list[_Row], a_steps: int, b_steps: int) -> GroupDifference:
    a_bytes = sum(row.a_count * row.size_bytes for row in rows)
    b_bytes = sum(row.b_count * row.size_bytes for row in rows)
    return GroupDifference(
        phase=where[0],
        owner=where[1],
        size_bytes=min(row.size_bytes for row in rows),
        largest_size_bytes=max(row.size_bytes for row in rows),
        sizes=len(rows),
        a_per_step=sum(row.a_count for row in rows) / a_steps,
        b_per_step=sum(row.b_count for row in rows) / b_steps,
        change_bytes=b_bytes / b_steps - a_bytes / a_steps,
    )
