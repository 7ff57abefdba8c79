"""The page's head: what ran, the figures that matter, and verdicts in words."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from gpumemtrace.analysis.summary import DeviceSummary
from gpumemtrace.report.places import place_values
from gpumemtrace.report.results import Results
from gpumemtrace.report.verdicts import verdicts

__all__ = ["NAME", "TITLE", "gather", "title_of"]

NAME = "overview"
TITLE = "Overview"


def gather(results: Results) -> dict[str, Any]:
    """Return heading, devices with their peaks, verdicts, and what was simulated."""
    summary = results.summary
    record = summary.run_record
    simulated = summary.simulated
    return {
        "title": title_of(results),
        "trace": summary.path,
        "steps": summary.steps,
        "duration_s": summary.duration_s,
        "events": summary.events,
        "torch": record.get("torch"),
        "rank": record.get("rank"),
        "world_size": record.get("world_size"),
        "host": record.get("host"),
        "dropped_events": summary.dropped_events,
        "devices": [_device(device) for device in summary.devices],
        "verdicts": [vars(verdict) for verdict in verdicts(results)],
        "simulated": None
        if simulated is None
        else {
            "gpu": simulated.gpu,
            "approximations": [_approximation(entry) for entry in simulated.approximations],
        },
    }


def title_of(results: Results) -> str:
    """Return the name of the script, else of the trace."""
    record = results.summary.run_record
    script = record.get("script") or next(iter(record.get("argv") or ()), None)
    return PurePath(str(script or results.summary.path or "trace")).name


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


def _approximation(entry: Any) -> dict[str, Any]:
    """One entry of the simulated GPU's report: ``{"name", "calls", "what"}``, or a text."""
    if not isinstance(entry, dict) or "name" not in entry:
        return {"name": str(entry), "calls": None, "what": ""}
    return {key: entry.get(key) for key in ("name", "calls", "what")}
