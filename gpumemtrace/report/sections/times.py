"""How long steps took, and which were slow and why."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpumemtrace.report.results import Results

__all__ = ["NAME", "TITLE", "gather"]

NAME = "times"
TITLE = "Time of steps"

_MOST_POINTS = 2000
_MOST_ROWS = 1000


def gather(results: Results) -> dict[str, Any]:
    """Return the time of each step (of many steps the longest of several each); slow ones."""
    times = results.step_times
    if not len(times.number):
        return {"unknown": "Not known: the trace has no completed step."}
    each = -(-len(times.number) // _MOST_POINTS)
    starts = np.arange(0, len(times.number), each)
    found = times.to_dict()
    return {
        "number": times.number[starts],
        "last": times.number[np.append(starts[1:], len(times.number)) - 1],
        "each": each,
        "merged_steps": times.merged_steps,
        "longest_ns": np.maximum.reduceat(times.duration_ns, starts),
        "median_s": found["median_s"],
        "p95_s": found["p95_s"],
        "phases": found["phases"],
        "slow": found["slow"][:_MOST_ROWS],
        "slow_in_all": len(found["slow"]),
    }
