"""Fragmentation in a sentence or two, for every view; what the causes are called."""

from __future__ import annotations

from gpumemtrace.analysis.fragmentation import Fragmentation
from gpumemtrace.analysis.segments import FREE_CAUSES
from gpumemtrace.units import format_bytes, format_duration

__all__ = ["CAUSES", "headline"]

# Cause of free memory -> what it is called, what that means.
CAUSES = {
    "private_pool": ("private pool", "for a CUDA graph or MemPool alone"),
    "other_stream": ("other stream", "for requests of that stream alone"),
    "idle": ("idle", "empty_cache would return it"),
    "small_pool": ("small pool", "beside blocks in use, for requests up to 1 MiB"),
    "interleaved": ("interleaved", "beside blocks in use"),
}


def headline(found: Fragmentation) -> str:
    """Return the answer in a sentence or two."""
    state = found.state
    if not found.known:
        return (
            f"cuda:{found.device}: not known. The trace does not tell of the allocator's segments "
            "here (it was made from plain events or by another recorder, or events were lost)."
        )
    if not state.cached_bytes:
        return f"cuda:{found.device}: nothing is cached {_place(found)}."
    cause = max(FREE_CAUSES, key=lambda name: state.free_bytes[name])
    label, meaning = CAUSES[cause]
    return (
        f"cuda:{found.device}: {format_bytes(state.cached_bytes)} of "
        f"{format_bytes(state.reserved_bytes)} reserved are cached {_place(found)}, "
        f"most of it {label} ({format_bytes(state.free_bytes[cause])}: {meaning}). The largest "
        f"request that fits without new memory is {format_bytes(found.largest[0].cached_bytes)}; "
        f"empty_cache would return {format_bytes(state.releasable_bytes)}."
    )


def _place(found: Fragmentation) -> str:
    phase = f"in {found.phase}, " if found.phase else "in "
    return f"{phase}step {found.state.step}, at {format_duration(found.state.time_ns / 1e9)}"
