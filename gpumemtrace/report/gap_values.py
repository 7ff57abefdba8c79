"""The gaps at an instant as values for bars and tables."""

from __future__ import annotations

from typing import Any

from gpumemtrace.analysis.gap_results import GAPS, Gaps, Place
from gpumemtrace.analysis.gap_wording import GAP_LABELS, GAP_MEANINGS, LINE_ABOVE

__all__ = ["gap_kinds", "gap_values", "where"]


def gap_kinds() -> list[dict[str, Any]]:
    """Return the parts of a bar, the lowest first: names, meanings, the line each reaches up to."""
    requested = {
        "name": "requested",
        "label": "requested",
        "meaning": "what the program asked for",
        "line": None,
    }
    return [requested] + [
        {
            "name": name,
            "label": GAP_LABELS[name],
            "meaning": GAP_MEANINGS[name],
            "line": LINE_ABOVE.get(name),
        }
        for name in GAPS
    ]


def gap_values(gaps: Gaps) -> dict[str, int | None]:
    """Return every part and every line in bytes; None where it is not known."""
    names = ("requested", *GAPS, *LINE_ABOVE.values())
    return {name: getattr(gaps, name) for name in names}


def where(place: Place) -> dict[str, Any]:
    """Return time, step and phase path."""
    return {
        "time_s": place.time_ns / 1e9,
        "step": place.step,
        "phase": "/".join(place.phase) if place.phase else None,
    }
