"""All bytes that were allocated, by site and category, however short each block lived."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.categories import Categories
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["SiteBytes", "find_allocated_bytes"]

_SITE_BITS, _CATEGORY_BITS = 32, 8
_DEVICE_SHIFT = _SITE_BITS + _CATEGORY_BITS


@dataclass(frozen=True)
class SiteBytes:
    """One row per site and category of a device.

    ``site``: uint32, 0 = none; ``category_id``: uint8, index into `CATEGORY_NAMES`; ``size_bytes``:
    int64, requested by all allocs together; ``allocs``: int64, how many there were.
    """

    site: npt.NDArray[np.uint32]
    category_id: npt.NDArray[np.uint8]
    size_bytes: npt.NDArray[np.int64]
    allocs: npt.NDArray[np.int64]


def find_allocated_bytes(trace: TraceData, categories: Categories) -> dict[int, SiteBytes]:
    """Add up all allocs in one pass; ``categories``: of the whole trace. Device -> its sums."""
    total: dict[int, list[int]] = {}
    done = 0  # allocs of the whole trace
    for batch in trace.chunks(lead_in=True):
        is_alloc = batch.raw["kind"] == Kind.ALLOC
        first, done = done, done + int(np.count_nonzero(is_alloc))
        if batch.is_lead_in or first == done:
            continue
        key = batch.raw["device"][is_alloc].astype(np.int64) << _DEVICE_SHIFT
        key |= batch.raw["site"][is_alloc].astype(np.int64) << _CATEGORY_BITS
        key |= categories.category_id[first:done]
        distinct, place, count = np.unique(key, return_inverse=True, return_counts=True)
        size_bytes = np.zeros(len(distinct), np.int64)
        np.add.at(size_bytes, place, batch.raw["size_bytes"][is_alloc])
        for one, *added in zip(distinct.tolist(), size_bytes.tolist(), count.tolist(), strict=True):
            known = total.setdefault(one, [0, 0])
            known[0] += added[0]
            known[1] += added[1]
    keys = np.array(sorted(total), np.int64)
    sums = np.array([total[key] for key in keys.tolist()], np.int64).reshape(-1, 2)
    device = keys >> _DEVICE_SHIFT
    return {
        number: SiteBytes(
            site=((keys[mine] >> _CATEGORY_BITS) & ((1 << _SITE_BITS) - 1)).astype(np.uint32),
            category_id=(keys[mine] & ((1 << _CATEGORY_BITS) - 1)).astype(np.uint8),
            size_bytes=sums[mine, 0],
            allocs=sums[mine, 1],
        )
        for number in np.unique(device).tolist()
        for mine in (device == number,)
    }
