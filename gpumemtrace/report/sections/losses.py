"""What is missing or wrong in the trace."""

from __future__ import annotations

from typing import Any

from gpumemtrace.report.results import Results

__all__ = ["NAME", "TITLE", "gather"]

NAME = "losses"
TITLE = "Losses"

_MOST_ROWS = 1000


def gather(results: Results) -> dict[str, Any]:
    """Return the gaps, and what a check of the file found."""
    summary, timeline = results.summary, results.timeline
    check = summary.check
    return {
        "dropped_events": summary.dropped_events,
        "complete": summary.complete,
        "verdict": check.verdict,
        "gaps": [{"time_s": at / 1e9, "lost": lost} for at, lost in timeline.gaps[:_MOST_ROWS]],
        "gaps_in_all": len(timeline.gaps),
        "diagnostics": [
            {"kind": found.kind, "message": found.message} for found in check.diagnostics
        ],
        "unseen_allocs": check.unseen_allocs,
    }
