"""What each phase did, and how high each went in each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.phases import PhaseUse
from gpumemtrace.analysis.step_phases import StepPhases
from gpumemtrace.analysis.summary import DeviceSummary
from gpumemtrace.report.results import Results

__all__ = ["NAME", "TITLE", "gather"]

NAME = "phases"
TITLE = "Phases"

_MOST_POINTS = 2000


def gather(results: Results) -> dict[str, Any]:
    """Return the figures of the phases, and their peaks over the steps, of every device."""
    of_device = {found.device: found for found in results.step_phases}
    devices = [
        {
            "device": device.device,
            "rows": _rows(device),
            "steps": _steps(of_device[device.device], results.step_times.number),
        }
        for device in results.summary.devices
    ]
    if not any(device["rows"] for device in devices):
        return {
            "unknown": "The trace has no phases: it was recorded with phases off, or ended before "
            "the first. Mark your own with gpumemtrace.phase()."
        }
    return {"devices": devices, "merged_steps": results.summary.check.aged.merged_steps}


def _rows(device: DeviceSummary) -> list[dict[str, Any]]:
    uses = [use for use in device.phases.phases if use.time_s or use.count]
    rows = [_row(use) for use in uses]
    outside = device.phases.outside
    if rows and outside.time_s > 0:
        rows.append(_row(outside) | {"count": None})
    return rows


def _row(use: PhaseUse) -> dict[str, Any]:
    return {
        "name": use.name,
        "count": use.count,
        "time_s": use.time_s,
        "allocated": use.peak["allocated"],
        "reserved": use.peak["reserved"],
        "kept_each": use.net_allocated_bytes / max(use.count, 1),
    }


def _steps(found: StepPhases, completed: npt.NDArray[np.int64]) -> dict[str, Any] | None:
    """Return step numbers and, per phase, peaks; of many steps the highest of several each."""
    # The last step may be unfinished: what it has reached so far would look like a fall.
    shown = np.isin(found.number, completed)
    number, peak = found.number[shown], found.peak_allocated_bytes[shown]
    if len(number) < 2:
        return None
    each = -(-len(number) // _MOST_POINTS)
    starts = np.arange(0, len(number), each)
    highest = np.maximum.reduceat(peak, starts, axis=0)
    used = np.flatnonzero((highest > 0).any(axis=0))
    return {
        "number": number[starts],
        "last": number[np.append(starts[1:], len(number)) - 1],
        "each": each,
        "phases": [
            {"name": [*found.names, ""][column], "peak_bytes": highest[:, column]}
            for column in used.tolist()
        ],
    }
