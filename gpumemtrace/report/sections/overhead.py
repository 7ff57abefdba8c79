"""What the recording itself cost."""

from __future__ import annotations

from typing import Any

from gpumemtrace.report.results import Results

__all__ = ["NAME", "TITLE", "gather"]

NAME = "overhead"
TITLE = "Cost of recording"


def gather(results: Results) -> dict[str, Any]:
    """Return the recorder's own figures; None where it did not say."""
    return {"duration_s": results.summary.duration_s} | results.summary.overhead.to_dict()
