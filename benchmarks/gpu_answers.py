"""Stages of `gpu_suite.py` that ask a trace, and compare with what its program measured itself."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from workloads import WORKLOADS

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path.insert(0, str(TESTS / "support"))

from category_truth import CLASSES, scores_of  # noqa: E402
from measured_phases import compare_measured_phases  # noqa: E402

import gpumemtrace  # noqa: E402
from gpumemtrace.analysis.categories import CATEGORY_NAMES  # noqa: E402
from gpumemtrace.analysis.peak_live_set import PeakLiveSet  # noqa: E402

__all__ = ["PROGRAMS", "compare_categories", "compare_modules", "compare_phases"]

PROGRAMS = TESTS / "programs"


def compare_phases(trace_path: Path, measured: list[dict[str, list[int]]]) -> list[str]:
    """Highest ``memory_allocated`` of each phase of each step, as measured by resets, and ours."""
    trace = gpumemtrace.open(trace_path)
    compared, off = compare_measured_phases(trace, measured)
    for device in trace.active_devices:
        peak = trace.peak(device=device)
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


def bytes_by_module(peak: PeakLiveSet) -> dict[str, dict[str, int]]:
    """Category -> module -> requested bytes in use at a peak."""
    keys, names = peak.owners.keys("module")
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    blocks = peak.blocks
    columns = (keys, blocks.category_id, blocks.requested_bytes)
    for key, category, size in zip(*(column.tolist() for column in columns), strict=True):
        found[CATEGORY_NAMES[category]][names[key]] += size
    return found


def compare_modules(trace_path: Path, workload: str) -> list[str]:
    """The peak by module: sums, equal layers, and parameters of the model's sizes.

    Activations are those in use at the peak of the second step's forward, which is its end.
    """
    trace = gpumemtrace.open(trace_path)
    peak = trace.peak()
    sums_equal = sum(group.size_bytes for group in peak.group_by("module")) == peak.size_bytes
    found = bytes_by_module(peak)

    forward = next(
        span
        for span in trace.phases
        if span.name == "forward" and span.start_ns >= trace.steps[1].start_ns
    )
    in_forward = trace.slice(time_ns=(forward.start_ns, forward.end_ns)).peak()
    activations = bytes_by_module(in_forward)["activation"]
    layers: dict[str, set[int]] = defaultdict(set)
    for name, size in activations.items():
        if place := re.search(r"\b(?:h|layers)\.(\d+)\b", name):
            layers[name.replace(place[0], place[0].replace(place[1], "*"), 1)].add(size)
    unequal = {name: sorted(sizes) for name, sizes in layers.items() if len(sizes) > 1}

    with torch.device("meta"):
        model = WORKLOADS[workload].model()
    seen: set[int] = set()
    expected: dict[str, int] = defaultdict(int)
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in seen:  # tied weights count where they come first
                seen.add(id(parameter))
                expected[name] += parameter.numel() * parameter.element_size()
    wrong = {
        name: (size, found["parameter"].get(name, 0))
        for name, size in expected.items()
        if found["parameter"].get(name, 0) != size
    }
    ok = sums_equal and not unequal and not wrong and layers
    return [
        f"{'PASS' if ok else 'FAIL'} {workload} by module: sum equals the peak {sums_equal}; "
        f"{len(layers)} modules of a layer, {len(unequal)} of them not equal in all layers "
        f"(activations: {sum(activations.values()):,} B); parameters of {len(expected)} modules, "
        f"{len(wrong)} off",
        *(f"     {name}: {sizes}" for name, sizes in list(unequal.items())[:5]),
        *(f"     {name}: {sizes}" for name, sizes in list(wrong.items())[:5]),
    ]
