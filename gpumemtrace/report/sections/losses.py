"""What is missing or wrong in the trace."""

from __future__ import annotations

from typing import Any

from gpumemtrace.analysis.aged import describe_ranges
from gpumemtrace.analysis.losses import Loss
from gpumemtrace.report.results import Results

__all__ = ["NAME", "TITLE", "gather"]

NAME = "losses"
TITLE = "Losses"

_MOST_ROWS = 1000


def gather(results: Results) -> dict[str, Any]:
    """Return the gaps, and what a check of the file found."""
    summary = results.summary
    check = summary.check
    return {
        "dropped_events": summary.dropped_events,
        "aged": check.aged.to_dict(),
        "detail": describe_ranges(check.aged.detailed),
        "complete": summary.complete,
        "verdict": check.verdict,
        "events": summary.events,
        "gaps": [_loss(loss) for loss in results.losses[:_MOST_ROWS]],
        "gaps_in_all": len(results.losses),
        "diagnostics": [
            {"kind": found.kind, "message": found.message} for found in check.diagnostics
        ],
        "unseen_allocs": check.unseen_allocs,
    }


def _loss(loss: Loss) -> dict[str, Any]:
    return {
        "time_s": loss.start_ns / 1e9,
        "length_s": (loss.end_ns - loss.start_ns) / 1e9,
        "lost": loss.events,
        "alloc_bytes": loss.alloc_bytes,
        "frees": loss.frees,
        "step": loss.step,
        "phase": loss.phase,
    }
