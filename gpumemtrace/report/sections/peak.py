"""What was in use when memory was highest: in groups, and block by block."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpumemtrace.analysis.categories import CATEGORY_NAMES
from gpumemtrace.analysis.peak_live_set import PeakLiveSet
from gpumemtrace.report.group_rows import group_rows
from gpumemtrace.report.results import Results

__all__ = ["NAME", "TITLE", "gather"]

NAME = "peak"
TITLE = "What owned the peak"

_GROUPINGS = ("category", "phase", "step", "size_class")
# Rows of equal blocks; a page stays small, and nobody reads further.
_MOST_ROWS = 2000


def gather(results: Results) -> dict[str, Any]:
    """Return each device's peak in groups, and its blocks: equal ones in one row."""
    if not results.peak_live_sets:
        return {"unknown": "No events: nothing was allocated on any GPU."}
    advice_of = {one.summary.device: one.advice for one in results.answers.devices}
    return {
        "devices": [
            _device(peak)
            | {"advice": [advice.to_dict() for advice in advice_of.get(peak.device, ())]}
            for peak in results.peak_live_sets
        ]
    }


def _device(peak: PeakLiveSet) -> dict[str, Any]:
    rows, in_all = _rows(peak)
    return {
        "device": peak.device,
        "bytes": peak.size_bytes,
        "time_s": peak.time_ns / 1e9,
        "step": peak.step,
        "phase": peak.phase,
        "groups": {by: group_rows(peak, by) for by in (*_GROUPINGS, *peak.owners.known)},
        "blocks": len(peak.blocks),
        "rows": rows,
        "rows_in_all": in_all,
    }


def _rows(peak: PeakLiveSet) -> tuple[dict[str, Any], int]:
    """Return columns of groups of equal blocks, the largest groups first.

    Owners are told where the trace tells them: an index into the names of those in the rows.
    """
    blocks, owners = peak.blocks, peak.owners
    birth_step = np.where(blocks.is_from_before, -1, blocks.birth_step)
    whose = [owners.keys(by) for by in owners.known]
    alike = np.stack(
        [
            blocks.allocated_bytes,
            blocks.category_id,
            blocks.birth_phase,
            birth_step,
            *(keys for keys, _ in whose),
        ]
    )
    distinct, count = np.unique(alike, axis=1, return_counts=True)
    order = np.argsort(-distinct[0] * count, kind="stable")
    size, category, phase, step, *keys_of_rows = distinct[:, order[:_MOST_ROWS]]
    told = {}
    for by, keys, (_, names) in zip(owners.known, keys_of_rows, whose, strict=True):
        used, place = np.unique(keys, return_inverse=True)
        told[by] = {"names": [names[key] for key in used], "place": place}
    return {
        "size_bytes": size,
        "count": count[order[:_MOST_ROWS]],
        "owners": told,
        "category": category,
        "phase": phase,
        "step": step,
        "category_names": CATEGORY_NAMES,
        "phase_names": peak.phase_names,
    }, len(order)
