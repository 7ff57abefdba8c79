"""The lines over time, with steps and phases; what a view shows is reduced in the page."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.phase_bands import PhaseBands
from gpumemtrace.analysis.timeline import DeviceTimeline, Timeline
from gpumemtrace.report.line_rows import PARTS, rows_of_columns
from gpumemtrace.report.places import place_values
from gpumemtrace.report.results import Results
from gpumemtrace.report.ticks import TICKS, ticks_of

__all__ = ["NAME", "TITLE", "gather"]

NAME = "timeline"
TITLE = "Memory over time"

# More stretches than this would make the page large: shares of time are shown then.
_MOST_STRETCHES = 400_000
_SHARE_COLUMNS = 4096
_MOST_NOTES = 500


def gather(results: Results) -> dict[str, Any]:
    """Return the rows of every device's lines, steps, phases, marks and gaps."""
    timeline = results.timeline
    if not timeline.devices:
        return {"unknown": "No events: this process allocated no memory on any GPU."}
    return {
        "start_s": timeline.start_ns / 1e9,
        "end_s": timeline.end_ns / 1e9,
        "ticks": TICKS,
        "devices": [_device(device) for device in timeline.devices],
        "steps": {
            "number": timeline.step_number,
            "start": ticks_of(timeline, timeline.step_start_ns),
        },
        "phases": _phases(timeline, timeline.phases),
        "first_work_s": _first_work_ns(timeline) / 1e9,
        "gaps": [{"time_s": at / 1e9, "lost": lost} for at, lost in timeline.gaps[:_MOST_NOTES]],
        "aged_s": (timeline.aged.span_ns / 1e9)[:_MOST_NOTES].tolist(),
        "notes": [{"time_s": at / 1e9, "text": text} for at, text in timeline.notes[:_MOST_NOTES]],
        "notes_in_all": len(timeline.notes),
    }


def _device(device: DeviceTimeline) -> dict[str, Any]:
    rows = rows_of_columns(device.lines)
    columns = len(next(iter(device.lines.values()), ()))
    return {
        "device": device.device,
        "name": device.facts.name,
        "capacity_bytes": device.facts.capacity_bytes,
        "places": columns * PARTS,
        "place": rows.place,
        "lines": _stacked(rows.values),
        "peak": None if device.peak is None else place_values(device.peak),
        "out_of_memory": [place_values(failure) for failure in device.out_of_memory[:_MOST_NOTES]],
        "uncertain_s": [[begin / 1e9, end / 1e9] for begin, end in device.uncertain_ns.tolist()],
    }


def _stacked(values: dict[str, npt.NDArray[np.int64]]) -> list[dict[str, Any]]:
    """Return each line as its distance from the one below, which repeats and packs well.

    ``first``: the row from which on the line is known.
    """
    stacked: list[dict[str, Any]] = []
    below = np.zeros(0, np.int64)
    # Allocated first: it moves, and the others move with it.
    for name in sorted(values, key=lambda name: name != "allocated"):
        line = values[name]
        first = int(np.argmax(line >= 0)) if len(line) and (line >= 0).any() else len(line)
        if name == "device_used":
            stacked.append({"name": name, "first": first, "over": None, "bytes": line[first:]})
        elif name == "allocated":
            below = line
            stacked.append({"name": name, "first": 0, "over": None, "bytes": line})
        else:
            stacked.append({"name": name, "first": 0, "over": "allocated", "bytes": line - below})
    return stacked


def _phases(timeline: Timeline, bands: PhaseBands) -> dict[str, Any]:
    if len(bands.phase) <= _MOST_STRETCHES:
        return {
            "names": bands.names,
            "phase": bands.phase,
            "start": ticks_of(timeline, bands.start_ns),
            "length": ticks_of(timeline, bands.end_ns) - ticks_of(timeline, bands.start_ns),
        }
    parts = np.array_split(bands.share, min(_SHARE_COLUMNS, len(bands.share)))
    share = np.array([part.mean(axis=0) for part in parts])
    permille = np.rint(share * 1000).astype(np.int64)
    return {
        "names": bands.names,
        "stretches": len(bands.phase),
        "share_permille": [permille[:, i] for i in range(len(bands.names))],
    }


def _first_work_ns(timeline: Timeline) -> int:
    """Return when the phase ``init`` is over that a run begins with; its start without one."""
    bands = timeline.phases
    if len(bands.phase) > 1 and bands.names[int(bands.phase[0])] == "init":
        return int(bands.end_ns[0])
    return timeline.start_ns
