"""What is in use after given events."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpumemtrace import _core
from gpumemtrace.analysis.categories import Categories
from gpumemtrace.analysis.live_set import LiveSet
from gpumemtrace.trace_data import TraceData

__all__ = ["find_live_sets"]


def find_live_sets(
    trace: TraceData, events: Sequence[int], *, device: int, categories: Categories
) -> tuple[LiveSet, ...]:
    """Return the blocks in use on a device when so many events have happened, which ascend.

    Blocks from before the recording or slice count. One pass over the trace.
    """
    groups = _core.LiveGroups(categories.category_id, len(trace.phase_names))
    none = np.zeros(0, np.int64), np.zeros(0, np.int16)
    found: list[LiveSet] = []

    def look() -> None:
        blocks = groups.live(device)
        blocks["alloc"] = blocks.pop("number")
        found.append(LiveSet(**blocks))

    for batch in trace.chunks(lead_in=True):
        after = batch.first_event + np.cumsum(batch.is_event)
        first = 0
        while not batch.is_lead_in and len(found) < len(events):
            end = int(np.searchsorted(after, events[len(found)], side="right"))
            if end == len(batch):
                break
            part = batch.window(first, end, first_event=0, is_lead_in=False)
            groups.feed(part.raw, part.step, part.phase, *none)
            look()
            first = end
        part = batch.window(first, len(batch), first_event=0, is_lead_in=False)
        groups.feed(part.raw, part.step, part.phase, *none)
    while len(found) < len(events):
        look()
    return tuple(found)
