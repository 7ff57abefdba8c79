"""Stages of `gpu_suite.py` that ask a trace, and compare with what its program measured itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path.insert(0, str(TESTS / "support"))

from category_truth import CLASSES, scores_of  # noqa: E402

import gpumemtrace  # noqa: E402
from gpumemtrace.analysis.step_phases import find_step_phases  # noqa: E402

__all__ = ["PROGRAMS", "compare_categories", "compare_phases"]

PROGRAMS = TESTS / "programs"


def compare_phases(trace_path: Path, measured: list[dict[str, list[int]]]) -> list[str]:
    """Highest ``memory_allocated`` of each phase of each step, as measured by resets, and ours."""
    trace = gpumemtrace.open(trace_path)
    compared, off = 0, []
    for device in find_step_phases(trace):
        for step, phases in enumerate(measured):
            row = device.peak_allocated_bytes[device.number.tolist().index(step)]
            for name, peaks in phases.items():
                compared += 1
                difference = int(row[device.names.index(name)]) - peaks[device.device]
                if difference:
                    off.append(f"step {step} {name}: {difference:+d} B")
        peak = trace.peak(device=device.device)
        for parts in (peak.steps.category_bytes, peak.steps.phase_bytes):
            if not np.array_equal(parts.sum(axis=1), peak.steps.size_bytes):
                off.append("sums differ from the peaks")
    ok = "PASS" if compared and not off else "FAIL"
    return [f"{ok} {trace_path.stem}: {compared} peaks of phases compared, {len(off)} differ", *off]


def compare_categories(folder: Path) -> list[str]:
    """Bytes named rightly in every scenario of `tests/programs/categories.py`."""
    rows = []
    for name in json.loads((folder / "truth.json").read_text()):
        for tags in (True, False):
            scores = scores_of(folder, name, tags=tags)
            total = sum(scores[c].true_bytes for c in CLASSES)
            right = sum(scores[c].right_bytes for c in CLASSES)
            claimed = sum(scores[c].claimed_bytes for c in CLASSES)
            allowed = 0 if tags or name != "frozen" else 360_000
            ok = "PASS" if total and right >= 0.99 * total and claimed <= allowed else "FAIL"
            how = "with tags" if tags else "by rules "
            rows.append(
                f"{ok} {name} {how}: {right:,} of {total:,} B right, {claimed:,} B claimed wrongly"
            )
    return rows
