"""What stands above all sections: what ran, where, and whether it was simulated."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from gpumemtrace.report.results import Results

__all__ = ["gather_head", "title_of"]


def gather_head(results: Results) -> dict[str, Any]:
    """Return the title, what is said below it, and what was simulated."""
    summary = results.summary
    record = summary.run_record
    simulated = summary.simulated
    return {
        "title": title_of(results),
        "steps": summary.steps,
        "summarised_steps": summary.check.aged.steps,
        "duration_s": summary.duration_s,
        "events": summary.events,
        "devices": [device.facts.name for device in summary.devices],
        "torch": record.get("torch"),
        "rank": record.get("rank"),
        "world_size": record.get("world_size"),
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


def _approximation(entry: Any) -> dict[str, Any]:
    """One entry of the simulated GPU's report: ``{"name", "calls", "what"}``, or a text."""
    if not isinstance(entry, dict) or "name" not in entry:
        return {"name": str(entry), "calls": None, "what": ""}
    return {key: entry.get(key) for key in ("name", "calls", "what")}
