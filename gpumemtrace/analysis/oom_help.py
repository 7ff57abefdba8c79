"""What a failed request lacked, and what would have given it that: bytes of this trace."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpumemtrace.analysis.advice import HALVE_BATCH, PeakFigures, advise
from gpumemtrace.analysis.categories import CATEGORY_NAMES
from gpumemtrace.analysis.live_set import LiveSet
from gpumemtrace.analysis.oom_results import Help
from gpumemtrace.analysis.peak_composition import PeakComposition
from gpumemtrace.analysis.segments import SegmentTotals
from gpumemtrace.units import format_bytes, format_count

__all__ = ["choose_cause", "find_helps", "unusable_bytes"]

_BEFORE_BACKWARD = ("data", "forward", "eval")
_WITH_THE_BATCH = (*_BEFORE_BACKWARD, "backward")  # where most requests are as large as the batch
# What one step makes and a later one may still need; older blocks than that the program keeps.
_OF_A_STEP = ("activation", "input", "temporary", "unknown")
_OLD_STEPS = 2
# Fewer steps than that may be a cache that fills.
_LEAST_KEPT_STEPS = 3
# What would have given a smaller part of what was missing is not worth a line.
_LEAST_SHARE = 0.01
_MOST_POOLS = 3


def unusable_bytes(state: SegmentTotals, stream: int) -> dict[str, int]:
    """Return what is free in the cache, but of no use to a request of ``stream``, by cause."""
    found = {"fragmentation": 0, "other_stream": 0, "private_pool": 0, "not_flushed": 0}
    for group in state.groups:
        if group.is_private:
            found["private_pool"] += group.free_bytes
            continue
        found["not_flushed"] += group.idle_bytes
        is_its = group.stream == stream
        found["fragmentation" if is_its else "other_stream"] += group.free_bytes - group.idle_bytes
    return found


def name_private_pools(state: SegmentTotals) -> str:
    """Return the private pools that have something free, the most first, by PyTorch's ids.

    Of a pool's id (``MemPool.id``, ``CUDAGraph.pool()``) PyTorch gives the first number to a graph
    that was captured without a pool, else the second one.
    """
    free: dict[tuple[int, int], int] = {}
    for group in state.groups:
        if group.is_private and group.free_bytes:
            free[group.pool] = free.get(group.pool, 0) + group.free_bytes
    pools = sorted(free, key=lambda pool: (-free[pool], pool))
    named = [f"{'CUDA graph' if pool[0] else 'MemPool'} {pool}" for pool in pools[:_MOST_POOLS]]
    if len(pools) > _MOST_POOLS:
        named.append(f"{len(pools) - _MOST_POOLS:,} more")
    return ", ".join(named)


def choose_cause(missing_bytes: int | None, lacking: Mapping[str, int]) -> str:
    """Return the cause of a failure; ``lacking``: cause -> what could not be used because of it."""
    if missing_bytes is None:
        return "unknown"
    if missing_bytes <= 0:
        return "limit"
    largest = max(lacking, key=lambda cause: lacking[cause])
    return largest if sum(lacking.values()) >= missing_bytes else "capacity"


def find_helps(
    blocks: LiveSet,
    lacking: Mapping[str, int],
    *,
    request_bytes: int,
    step: int,
    phase: str | None,
    device_free_bytes: int | None,
    missing_bytes: int | None,
    expandable_segments: bool,
    world_size: int,
    private_pools: str = "",
) -> tuple[Help, ...]:
    """Return what would have helped: what is enough first, then what is a mistake of the
    program's, then by bytes. ``private_pools``: of `name_private_pools`."""
    found = [
        *_about_cache(lacking, private_pools, expandable_segments=expandable_segments),
        *_about_kept(blocks, step),
        *_about_gradients(blocks, phase),
        *_about_batch(blocks, phase, request_bytes),
        *_about_categories(blocks, step, phase, world_size),
    ]
    if missing_bytes is not None and missing_bytes <= 0:
        free = format_bytes(device_free_bytes or 0)
        limit = "raise the limit (torch.cuda.set_per_process_memory_fraction)"
        found.append(("limit", limit, device_free_bytes or 0, f"{free} free on the device"))
    helps = [
        Help(
            about,
            change,
            size,
            evidence,
            missing_bytes is not None and size >= missing_bytes,
        )
        for about, change, size, evidence in found
        if size > max(0, _LEAST_SHARE * (missing_bytes or 0))
    ]
    return tuple(sorted(helps, key=lambda h: (not h.is_enough, h.about != "kept", -h.size_bytes)))


_Found = tuple[str, str, int, str]  # about, change, bytes, evidence


def _about_cache(
    lacking: Mapping[str, int], private_pools: str, *, expandable_segments: bool
) -> list[_Found]:
    def part(cause: str, change: str, where: str) -> _Found:
        size = lacking.get(cause, 0)
        return (cause, change, size, f"{format_bytes(size)} {where}")

    found = [
        part(
            "other_stream",
            "allocate on one stream (and record_stream where another uses it)",
            "free in segments of other streams, beside blocks in use",
        ),
        part(
            "private_pool",
            "delete the graph or MemPool before",
            f"free in private pools: {private_pools}",
        ),
        part("not_flushed", "call empty_cache() before the capture", "idle in the cache"),
        part(
            "outside",
            "free what is outside PyTorch (NCCL's buffers, libraries, other processes)",
            "in use there, beyond what was at first",
        ),
    ]
    if not expandable_segments:
        change = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        found.append(part("fragmentation", change, "free beside blocks in use, not in one piece"))
    return found


def _about_kept(blocks: LiveSet, step: int) -> list[_Found]:
    """What earlier steps made and nobody let go of: a list of losses, of outputs, of batches."""
    passing = np.isin(blocks.category_id, [CATEGORY_NAMES.index(name) for name in _OF_A_STEP])
    # The first step makes what the whole run needs: workspaces, caches.
    old = (blocks.birth_step > 0) & (blocks.birth_step <= step - _OLD_STEPS)
    kept = passing & old & ~blocks.is_from_before
    steps = np.unique(blocks.birth_step[kept])
    if len(steps) < _LEAST_KEPT_STEPS:
        return []
    size = int(blocks.allocated_bytes[kept].sum())
    evidence = (
        f"{format_bytes(size)} in {format_count(int(kept.sum()), 'block')} of steps "
        f"{steps[0]} to {steps[-1]}, still in use in step {step}"
    )
    change = "let go of what earlier steps made (keep .item(), or .detach().cpu(), not tensors)"
    return [("kept", change, size, evidence)]


def _about_gradients(blocks: LiveSet, phase: str | None) -> list[_Found]:
    if phase not in _BEFORE_BACKWARD:
        return []
    size = _category_bytes(blocks).get("gradient", 0)
    change = "set gradients to None before the forward pass (zero_grad)"
    return [("gradient", change, size, f"{format_bytes(size)} of gradients held in {phase}")]


def _about_batch(blocks: LiveSet, phase: str | None, request_bytes: int) -> list[_Found]:
    if phase not in _WITH_THE_BATCH:
        return []
    kept = _category_bytes(blocks).get("activation", 0)
    evidence = f"{format_bytes(kept)} of activations held, and a request of {phase}"
    return [("activation", HALVE_BATCH, kept // 2 + request_bytes // 2, evidence)]


def _about_categories(
    blocks: LiveSet, step: int, phase: str | None, world_size: int
) -> list[_Found]:
    by_name = _category_bytes(blocks)
    each = np.array([by_name.get(name, 0) for name in CATEGORY_NAMES], np.int64)
    total = int(each.sum())
    empty = np.zeros((0, len(CATEGORY_NAMES)), np.int64)
    # Only this instant counts, so what a category takes is what would have been free without it.
    instant = PeakComposition(empty, empty, total - each, total - each // 2, None)
    figures = PeakFigures(
        allocated_bytes=total,
        phase=phase,
        category_bytes=by_name,
        composition=instant,
        active_bytes=None,
        reserved_bytes=None,
        outside_bytes=None,
        expandable_segments=True,
        world_size=world_size,
        moment="when it failed",
        earlier_activation_bytes=blocks.bytes_from_earlier("activation", step=step),
    )
    return [
        (a.about, a.change, a.saves_bytes, a.evidence)
        for a in advise(figures)
        if a.change != HALVE_BATCH or phase not in _WITH_THE_BATCH
    ]


def _category_bytes(blocks: LiveSet) -> dict[str, int]:
    sums = np.zeros(len(CATEGORY_NAMES), np.int64)
    np.add.at(sums, blocks.category_id, blocks.allocated_bytes)
    return {name: int(size) for name, size in zip(CATEGORY_NAMES, sums, strict=True) if size}
