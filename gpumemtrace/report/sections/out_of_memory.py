"""Requests that could not be served, and retries."""

from __future__ import annotations

from typing import Any

from gpumemtrace.report.places import place_values
from gpumemtrace.report.results import Results

__all__ = ["NAME", "TITLE", "gather"]

NAME = "out_of_memory"
TITLE = "Out of memory"

_MOST_ROWS = 1000


def gather(results: Results) -> dict[str, Any]:
    """Return the failed requests of all devices."""
    failures = [
        {"device": device.device} | place_values(failure)
        for device in results.summary.devices
        for failure in device.out_of_memory
    ]
    retries = sum(device.retries for device in results.summary.devices)
    if not failures and not retries:
        return {"unknown": "Every request was served, and the cache never had to be flushed."}
    return {"rows": failures[:_MOST_ROWS], "failures": len(failures), "retries": retries}
