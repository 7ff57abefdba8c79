"""What memory was for over time: parameters, gradients, activations, … stacked."""

from __future__ import annotations

from typing import Any

from gpumemtrace.analysis.categories import CATEGORY_NAMES
from gpumemtrace.analysis.category_timeline import CategoryTimeline
from gpumemtrace.analysis.rest import NOT_SEEN, SUMMARISED
from gpumemtrace.plot.style import CATEGORY_COLORS
from gpumemtrace.report.results import Results
from gpumemtrace.report.ticks import TICKS, ticks_of

__all__ = ["NAME", "TITLE", "gather"]

NAME = "categories"
TITLE = "What it was for"


def gather(results: Results) -> dict[str, Any]:
    """Return the categories of each device at the highest and last record of each column."""
    timeline = results.timeline
    found = results.category_timelines
    if not any(one.category_bytes.any() for one in found):
        return {"unknown": "No blocks: nothing was allocated while the trace was recorded."}
    return {
        "start_s": timeline.start_ns / 1e9,
        "end_s": timeline.end_ns / 1e9,
        "ticks": TICKS,
        "has_phases": len(timeline.phases.names) > 0,
        "devices": [
            {
                "device": one.device,
                "time": ticks_of(timeline, one.time_ns),
                "layers": _layers(one),
            }
            for one in found
        ],
    }


def _layers(one: CategoryTimeline) -> list[dict[str, Any]]:
    # What is negative can't be stacked: see `gpumemtrace.analysis.rest`.
    layers: list[dict[str, Any]] = [{"name": NOT_SEEN, "bytes": one.rest_bytes.clip(min=0)}]
    layers += [
        {"name": name, "bytes": one.category_bytes[:, CATEGORY_NAMES.index(name)]}
        for name in CATEGORY_COLORS
    ]
    layers.append({"name": SUMMARISED, "bytes": one.summarised_bytes.clip(min=0)})
    return [layer for layer in layers if layer["bytes"].any()]
