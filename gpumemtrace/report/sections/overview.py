"""The figures that matter, and verdicts in words."""

from __future__ import annotations

from typing import Any

from gpumemtrace.analysis.summary import DeviceSummary
from gpumemtrace.report.places import place_values
from gpumemtrace.report.results import Results
from gpumemtrace.report.verdicts import verdicts

__all__ = ["NAME", "TITLE", "gather"]

NAME = "overview"
TITLE = "Overview"


def gather(results: Results) -> dict[str, Any]:
    """Return devices with their peaks, and verdicts."""
    summary = results.summary
    return {
        "steps": summary.steps,
        "summarised_steps": summary.check.aged.steps,
        "duration_s": summary.duration_s,
        "events": summary.events,
        "recorded_events": summary.events + summary.check.aged.left_out_events,
        "dropped_events": summary.dropped_events,
        "devices": [_device(device) for device in summary.devices],
        "verdicts": [vars(verdict) for verdict in verdicts(results)],
    }


def _device(device: DeviceSummary) -> dict[str, Any]:
    return {
        "device": device.device,
        "name": device.facts.name,
        "capacity_bytes": device.facts.capacity_bytes,
        "peaks": {
            name: None if peak is None else place_values(peak)
            for name, peak in device.peaks.lines.items()
        },
    }
