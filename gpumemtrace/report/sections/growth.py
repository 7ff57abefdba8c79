"""Does memory grow from step to step: the verdict, and what stays in use."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpumemtrace.analysis.growth import DeviceGrowth
from gpumemtrace.analysis.growth_wording import describe_growth
from gpumemtrace.report.results import Results

__all__ = ["NAME", "TITLE", "gather"]

NAME = "growth"
TITLE = "Growth"

_MOST_POINTS = 1500
_MOST_LAYERS = 7


def gather(results: Results) -> dict[str, Any]:
    """Return, per device, the verdict and what was in use at the end of each step by origin."""
    devices = results.growth.devices
    if not any(len(device.retained.number) for device in devices):
        return {
            "unknown": "Not known: the trace has no completed step. A step ends with "
            "optimizer.step(), or with gpumemtrace.step()."
        }
    return {"devices": [_device(device) for device in devices if len(device.retained.number)]}


def _device(device: DeviceGrowth) -> dict[str, Any]:
    kept = device.retained
    each = -(-len(kept.number) // _MOST_POINTS)
    # Every so manieth step; the last one always.
    shown = np.arange(len(kept.number) - 1, -1, -each)[::-1]
    order = np.argsort(-kept.size_bytes.max(axis=0), kind="stable")
    layers = [
        {
            "phase": kept.groups[group].phase,
            "category": kept.groups[group].category,
            "bytes": kept.size_bytes[shown, group],
        }
        for group in order[:_MOST_LAYERS].tolist()
    ]
    others = kept.size_bytes[shown][:, order[_MOST_LAYERS:]].sum(axis=1)
    first = 0 if device.from_step is None else int(np.searchsorted(kept.number, device.from_step))
    return {
        "device": device.device,
        "verdict": device.verdict,
        "sentence": describe_growth(device),
        "number": kept.number[shown],
        "each": each,
        "layers": layers,
        "others_bytes": others if others.any() else None,
        "first_step": int(kept.number[first]),
        "last_step": int(kept.number[-1]),
        "groups": [
            {
                "phase": kept.groups[group].phase,
                "category": kept.groups[group].category,
                "first_bytes": int(kept.size_bytes[first, group]),
                "last_bytes": int(kept.size_bytes[-1, group]),
            }
            for group in order.tolist()
            if kept.size_bytes[[first, -1], group].any()
        ],
    }
