"""Where and when something happened, in words and as values for a table."""

from __future__ import annotations

from typing import Any

from gpumemtrace.analysis.peaks import Peak
from gpumemtrace.units import format_duration

__all__ = ["place_in_words", "place_values"]


def place_in_words(peak: Peak) -> str:
    """Return ``in backward of step 3, 1.5 s into the run``."""
    step = f"step {peak.step}"
    where = f"{peak.phase} of {step}" if peak.phase else f"{step}, outside of any phase"
    return f"in {where}, {format_duration(peak.time_ns / 1e9)} into the run"


def place_values(peak: Peak) -> dict[str, Any]:
    """Return bytes, seconds, step and phase."""
    return {
        "bytes": peak.size_bytes,
        "time_s": peak.time_ns / 1e9,
        "step": peak.step,
        "phase": peak.phase,
        "event": peak.event,
    }
