"""What is in use at the end of two steps, by who made it or what it is for: what grew between."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gpumemtrace.analysis.categories import Categories, find_categories
from gpumemtrace.analysis.growth import DeviceGrowth
from gpumemtrace.analysis.live_at import find_live_sets
from gpumemtrace.analysis.live_set import LiveGroup, LiveSet, sum_groups
from gpumemtrace.analysis.owners import OWNERS, find_owners
from gpumemtrace.trace_data import TraceData

__all__ = ["RETAINED_BY", "RetainedBy", "RetainedGroup", "find_retained_by"]

RETAINED_BY = ("category", "phase", *OWNERS)


@dataclass(frozen=True)
class RetainedGroup:
    """Blocks with one owner: bytes and number in use at the end of the first and the last step."""

    name: str
    first_bytes: int
    last_bytes: int
    first_blocks: int
    last_blocks: int


@dataclass(frozen=True)
class RetainedBy:
    """What a device has in use at the end of two steps; the largest change first.

    Bytes are allocated ones. The groups of each step add up to all its blocks.
    """

    device: int
    by: str
    first_step: int
    last_step: int
    groups: tuple[RetainedGroup, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return {
            "by": self.by,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "groups": [asdict(group) for group in self.groups],
        }


def find_retained_by(
    trace: TraceData, growth: DeviceGrowth, by: str, *, categories: Categories | None = None
) -> RetainedBy | None:
    """Group what is in use at the end of the first and last step that growth was judged by.

    ``by``: one of `RETAINED_BY`, else `ValueError`; ``categories``: of this trace, where the caller
    has them already. Returns None if no step was completed.
    """
    if by not in RETAINED_BY:
        raise ValueError(f"by must be one of {', '.join(RETAINED_BY)}, not {by!r}")
    told = growth.retained.number
    if not len(told):
        return None
    first = int(told[0]) if growth.from_step is None else growth.from_step
    numbers = (first, int(told[-1]))
    steps = trace.steps
    rows = [int(np.flatnonzero(steps.number == number)[-1]) for number in numbers]
    live = find_live_sets(
        trace,
        [int(steps.end_event[row]) for row in rows],
        device=growth.device,
        categories=categories or find_categories(trace),
    )
    before, after = (
        {group.name: group for group in _groups(trace, blocks, by, number)}
        for blocks, number in zip(live, numbers, strict=True)
    )
    groups = [_pair(name, before.get(name), after.get(name)) for name in before | after]
    groups.sort(key=lambda g: (-abs(g.last_bytes - g.first_bytes), -g.last_bytes, g.name))
    return RetainedBy(growth.device, by, *numbers, tuple(groups))


def _groups(trace: TraceData, blocks: LiveSet, by: str, step: int) -> tuple[LiveGroup, ...]:
    if by not in OWNERS:
        return blocks.group_by(by, step=step, phase_names=trace.phase_names)
    owners = find_owners(trace, blocks.alloc, blocks.allocated_bytes)
    return sum_groups(*owners.keys(by), blocks.allocated_bytes)


def _pair(name: str, first: LiveGroup | None, last: LiveGroup | None) -> RetainedGroup:
    nothing = LiveGroup(name, 0, 0)
    first, last = first or nothing, last or nothing
    return RetainedGroup(
        name, first.size_bytes, last.size_bytes, first.blocks or 0, last.blocks or 0
    )
