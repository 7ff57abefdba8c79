"""What lies between the five lines: rounding, pending frees, the cache, what is outside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpumemtrace.analysis.cached_series import CachedSeries
from gpumemtrace.analysis.fragmentation_wording import CAUSES
from gpumemtrace.analysis.gap_results import DeviceGaps, Extreme, OrderBreak
from gpumemtrace.analysis.segments import FREE_CAUSES
from gpumemtrace.report.gap_values import gap_kinds, gap_values, where
from gpumemtrace.report.results import Results

__all__ = ["NAME", "TITLE", "gather"]

NAME = "gaps"
TITLE = "Between the lines"

_MOMENTS = {
    "allocated": "most allocated",
    "reserved": "most reserved",
    "device_free": "least free on the device",
}
_MOST_CHANGES = 200


def gather(results: Results) -> dict[str, Any]:
    """Return, per device, the gaps at the moments that matter, their extremes, and by phase."""
    found = [device.gaps for device in results.answers.devices if device.gaps is not None]
    found = [gaps for gaps in found if "allocated" in gaps.highest]
    if not found:
        return {"unknown": "Nothing was allocated while the lines were certain."}
    cached = {one.device: one.series for one in results.fragmentations if one.known}
    return {
        "parts": gap_kinds(),
        "devices": [_device(gaps, cached.get(gaps.device)) for gaps in found],
    }


def _device(gaps: DeviceGaps, cached: CachedSeries | None) -> dict[str, Any]:
    least = gaps.highest.get("device_free_with_cached")
    return {
        "device": gaps.device,
        "own_is_known": gaps.own_is_known,
        "moments": _moments(gaps),
        "highest": {name: _extreme(extreme) for name, extreme in gaps.highest.items()},
        "least_with_cache": None if least is None else _extreme(least),
        "cached": None if cached is None else _causes(cached),
        "phases": [
            {"phase": "/".join(path), "outside_change": gaps.outside_by_phase.get(path, 0)}
            | gap_values(highest["allocated"].gaps)
            for path, highest in gaps.phases.items()
            if "allocated" in highest
        ],
        "outside": [
            where(change.after) | {"bytes": change.outside_bytes, "change": change.change_bytes}
            for change in gaps.outside[:_MOST_CHANGES]
        ],
        "outside_in_all": len(gaps.outside),
        "breaks": [_break(found) for found in gaps.breaks],
    }


def _moments(gaps: DeviceGaps) -> list[dict[str, Any]]:
    """Return what the bars show; moments at which all is the same are one."""
    moments: list[dict[str, Any]] = []
    for name, label in _MOMENTS.items():
        if name not in gaps.highest:
            continue
        extreme = gaps.highest[name]
        moment = {"labels": [label], "gaps": gap_values(extreme.gaps)} | where(extreme.place)
        same = next((m for m in moments if m["gaps"] == moment["gaps"]), None)
        if same is None:
            moments.append(moment)
        else:
            same["labels"].append(label)
    return [{"label": ", ".join(moment.pop("labels"))} | moment for moment in moments]


def _extreme(extreme: Extreme) -> dict[str, Any]:
    return {"bytes": extreme.size_bytes} | where(extreme.place)


def _causes(series: CachedSeries) -> dict[str, Any] | None:
    """Return what was cached when that was most, by cause."""
    if not len(series) or not series.cached.any():
        return None
    row = int(np.argmax(series.cached))
    return {
        "bytes": int(series.cached[row]),
        "step": int(series.step[row]),
        "time_s": int(series.time_ns[row]) / 1e9,
        "causes": [
            {
                "name": cause,
                "label": CAUSES[cause][0],
                "meaning": CAUSES[cause][1],
                "bytes": int(series.free[cause][row]),
            }
            for cause in FREE_CAUSES
            if series.free[cause][row]
        ],
    }


def _break(found: OrderBreak) -> dict[str, Any]:
    lower, upper = found.pair.split(">")
    return {
        "lower": lower.replace("_", " "),
        "upper": upper.replace("_", " "),
        "reason": found.reason.replace("_", " "),
        "records": found.records,
        "most_bytes": found.most_bytes,
        "is_harmless": found.is_harmless,
    }
