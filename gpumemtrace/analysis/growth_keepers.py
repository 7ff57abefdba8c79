"""Which module and which line made the blocks that a growing run keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.growth_owners import Keeper, Owner
from gpumemtrace.analysis.owners import find_owners
from gpumemtrace.analysis.retention import allocs_before
from gpumemtrace.trace_data import TraceData

__all__ = ["name_keepers"]


def name_keepers(
    trace: TraceData, devices: Sequence[tuple[Owner, ...]]
) -> tuple[tuple[Owner, ...], ...]:
    """Return what grows on each device with the module and the line that made it, where known.

    Reads the trace once more if it tells of modules or call sites and something grows.
    """
    kept = [owner.allocs for owners in devices for owner in owners]
    if not len(trace.sites) or not any(map(len, kept)):
        return tuple(devices)
    allocs = np.unique(np.concatenate(kept))
    sizes = np.zeros(len(allocs), np.int64)
    for owners in devices:
        for owner in owners:
            sizes[np.searchsorted(allocs, owner.allocs)] = owner.size_bytes or 0
    made_by = find_owners(trace, allocs + allocs_before(trace), sizes)
    has_line = trace.sites.frame[trace.sites.clipped(made_by.site)] != 0

    def named(owner: Owner) -> Owner:
        rows = np.searchsorted(allocs, owner.allocs)
        module = made_by.module[rows]
        return replace(
            owner,
            module=_most(module, module >= 0, made_by.module_names),
            line=_most(made_by.line[rows], has_line[rows], made_by.line_names),
        )

    return tuple(tuple(map(named, owners)) for owners in devices)


def _most(
    key: npt.NDArray[np.int32], is_known: npt.NDArray[np.bool_], names: Sequence[str]
) -> Keeper | None:
    """Return who has most of the blocks whose owner is known; None if that is nobody's."""
    if not is_known.any():
        return None
    counts = np.bincount(key[is_known])
    most = int(np.argmax(counts))
    return Keeper(names[most], int(counts[most]), int(is_known.sum()), len(key))
