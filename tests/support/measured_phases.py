"""Peaks of phases that a script measured itself, by resets of the counters, against its trace."""

from __future__ import annotations

from collections.abc import Sequence

from gpumemtrace.analysis.step_phases import find_step_phases
from gpumemtrace.trace import Trace

__all__ = ["compare_measured_phases"]


def compare_measured_phases(
    trace: Trace, measured: Sequence[dict[str, list[int]]]
) -> tuple[int, list[str]]:
    """Return how many peaks were compared, and in words where the trace has others.

    ``measured``: per step, by phase, ``max_memory_allocated`` of each device.
    """
    compared, off = 0, []
    for device in find_step_phases(trace):
        for step, phases in enumerate(measured):
            row = device.peak_allocated_bytes[device.number.tolist().index(step)]
            for name, peaks in phases.items():
                compared += 1
                difference = int(row[device.names.index(name)]) - peaks[device.device]
                if difference:
                    off.append(f"cuda:{device.device} step {step} {name}: {difference:+d} B")
    return compared, off
