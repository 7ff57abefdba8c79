"""What the allocator holds: a map of addresses over time, what is cached and why, what pins it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.fragmentation import Fragmentation, PinnedSegment
from gpumemtrace.analysis.fragmentation_wording import CAUSES, headline
from gpumemtrace.analysis.segment_map import SegmentMap
from gpumemtrace.analysis.segments import FREE_CAUSES
from gpumemtrace.report.results import Results
from gpumemtrace.report.ticks import TICKS, ticks_of

__all__ = ["NAME", "TITLE", "gather"]

NAME = "segments"
TITLE = "Segments and fragmentation"

_MOST_RANGES = 400


def gather(results: Results) -> dict[str, Any]:
    """Return, per device, the map, cached memory over time by cause, and pinned segments."""
    found = results.fragmentations
    if not any(one.known for one in found):
        return {
            "unknown": "Not known: the trace does not tell of the allocator's segments (it was "
            "made from plain events or by another recorder, or events were lost)."
        }
    timeline = results.timeline
    maps = {one.device: one for one in results.segment_maps}
    return {
        "start_s": timeline.start_ns / 1e9,
        "end_s": timeline.end_ns / 1e9,
        "ticks": TICKS,
        "devices": [
            {
                "device": one.device,
                "known": one.known,
                "sentence": headline(one),
                "index": one.index,
                "map": _map(results, maps.get(one.device)),
                "cached": _cached(results, one),
                "pinned": [_pinned(segment) for segment in one.pinned],
                "pinned_in_all": one.pinned_segments,
            }
            for one in found
        ],
    }


def _map(results: Results, found: SegmentMap | None) -> dict[str, Any] | None:
    if found is None or not len(found.time_ns) or not len(found.range_base):
        return None
    return {
        "time": ticks_of(results.timeline, found.time_ns),
        "rows": found.use_percent.shape[1],
        "row_bytes": found.row_bytes,
        # Column after column, each from the lowest address up.
        "use_percent": found.use_percent.ravel(),
        "ranges": [
            [hex(base), size]
            for base, size in zip(
                found.range_base[:_MOST_RANGES].tolist(),
                found.range_bytes[:_MOST_RANGES].tolist(),
                strict=True,
            )
        ],
    }


def _cached(results: Results, one: Fragmentation) -> dict[str, Any]:
    series = one.series
    layers: list[tuple[str, npt.NDArray[np.int64]]] = [("active", series.active)]
    layers += [(cause, series.free[cause]) for cause in FREE_CAUSES]
    return {
        "time": ticks_of(results.timeline, series.time_ns),
        "layers": [
            {
                "name": name,
                "label": CAUSES[name][0] if name in CAUSES else name,
                "meaning": CAUSES[name][1] if name in CAUSES else "in use",
                "bytes": values,
            }
            for name, values in layers
            if values.any()
        ],
    }


def _pinned(segment: PinnedSegment) -> dict[str, Any]:
    oldest = segment.blocks[0]
    return {
        "base": hex(segment.base),
        "size_bytes": segment.size_bytes,
        "free_bytes": segment.free_bytes,
        "block_count": segment.block_count,
        "oldest_bytes": oldest.size_bytes,
        "phase": oldest.phase,
        "step": oldest.step,
        "age_s": oldest.age_ns / 1e9,
    }
