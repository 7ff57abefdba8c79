"""Requests that could not be served: why, who held the memory, what would have helped; retries."""

from __future__ import annotations

from typing import Any

from gpumemtrace.analysis.oom import FailedRequest
from gpumemtrace.analysis.oom_wording import (
    describe_cause,
    describe_figures,
    describe_outside,
    describe_request,
)
from gpumemtrace.report.gap_values import gap_kinds, gap_values, where
from gpumemtrace.report.places import place_values
from gpumemtrace.report.results import Results

__all__ = ["NAME", "TITLE", "gather", "is_fatal"]

NAME = "out_of_memory"
TITLE = "Out of memory"

_MOST_ROWS = 1000


def is_fatal(results: Results) -> bool:
    """Whether the run ended for want of memory: then it is what the reader came for."""
    return results.oom.died_of_it or results.oom.outside is not None


def gather(results: Results) -> dict[str, Any]:
    """Return each failed request with its causes, the last first, and a table of all."""
    oom = results.oom
    failures = [
        {"device": device.device} | place_values(failure)
        for device in results.summary.devices
        for failure in device.out_of_memory
    ]
    retries = sum(device.retries for device in results.summary.devices)
    if not failures and not retries and oom.outside is None:
        return {"unknown": "Every request was served, and the cache never had to be flushed."}
    return {
        "died_of_it": oom.died_of_it,
        "outside": None if oom.outside is None else describe_outside(oom.outside),
        "explained": [_explained(request) for request in reversed(oom.requests)],
        "parts": gap_kinds(),
        "rows": failures[:_MOST_ROWS],
        "failures": len(failures),
        "retries": retries,
    }


def _explained(request: FailedRequest) -> dict[str, Any]:
    return {
        "headline": describe_request(request),
        "cause": describe_cause(request),
        "figures": describe_figures(request),
        "before": None
        if request.gaps is None
        else {"label": "just before", "gaps": gap_values(request.gaps)},
        "groups": [group.to_dict() for group in request.groups],
        "helps": [found.to_dict() for found in request.helps],
    } | where(request.place)
