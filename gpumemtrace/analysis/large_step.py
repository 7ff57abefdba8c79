"""One step that took far more memory than all others, or after which more stayed in use."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.growth_rate import LEAST_STEPS
from gpumemtrace.analysis.peaks import DevicePeaks
from gpumemtrace.analysis.retention import DeviceRetention

__all__ = ["LargeStep", "find_large_step"]

# A difference below so much of the level is nobody's trouble.
_LEAST_BYTES = 1 << 20
_LEAST_SHARE_KEPT = 0.02
_LEAST_SHARE_PEAK = 0.1
_LEAST_DEVIATIONS = 10
# The peaks of the first steps are the warm-up's (benchmarks of algorithms, workspaces).
_FIRST_STEPS = 3


@dataclass(frozen=True)
class LargeStep:
    """A step that stands out by ``extra_bytes``.

    ``kept``: they stayed in use after it; else only the step's peak was so high. ``phase``: that
    in which most of what stayed was born; None outside of any, and for a peak.
    """

    step: int
    extra_bytes: int
    kept: bool
    phase: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return {
            "step": self.step,
            "extra_bytes": self.extra_bytes,
            "kept": self.kept,
            "phase": self.phase,
        }


def find_large_step(
    kept: DeviceRetention,
    peaks: DevicePeaks,
    regimes: list[int],
    number: npt.NDArray[np.int64],
) -> LargeStep | None:
    """Return the step that raised what is kept once for all, or whose peak stands out.

    ``regimes``: rows from which on another line describes what is kept, the first one counted.
    """
    total = kept.retained_bytes.sum(axis=1)
    found: LargeStep | None = None
    for before, start in pairwise(regimes):
        if start - before < LEAST_STEPS or start < LEAST_STEPS:
            continue  # the warm-up goes up in steps
        # The running median that finds regimes may be off by two.
        near = np.arange(max(start - 2, 1), min(start + 3, len(total)))
        row = int(near[np.argmax(total[near] - total[near - 1])])
        jump = int(total[row] - total[row - 1])
        lasting = int(total[row:].min() - total[max(row - LEAST_STEPS, 0) : row].max())
        if min(jump, lasting) >= max(_LEAST_BYTES, _LEAST_SHARE_KEPT * total[row - 1]):
            found = _kept_step(kept, row, jump, int(number[row]))
    return found or _highest_peak(kept, peaks, regimes[0], number)


def _kept_step(kept: DeviceRetention, row: int, jump: int, step: int) -> LargeStep:
    group = int(np.argmax(kept.retained_bytes[row] - kept.retained_bytes[row - 1]))
    # What survives is told from what only this step had; without survivors the level has to do.
    born = kept.survivor_bytes[:, group]
    extra = int(born[row] - np.median(born))
    return LargeStep(step, extra if 2 * extra >= jump else jump, True, kept.groups[group].phase)


def _highest_peak(
    kept: DeviceRetention, peaks: DevicePeaks, first: int, number: npt.NDArray[np.int64]
) -> LargeStep | None:
    rows = np.arange(first + _FIRST_STEPS, len(number))
    if len(rows) < LEAST_STEPS:
        return None
    peak = peaks.steps.peak["allocated"][kept.ordinal[rows]]
    highest = int(np.argmax(peak))
    others = np.delete(peak, highest)
    median = float(np.median(others))
    spread = float(np.median(np.abs(others - median)))
    extra = int(peak[highest]) - int(others.max())
    least = max(_LEAST_BYTES, _LEAST_SHARE_PEAK * median, _LEAST_DEVIATIONS * spread)
    if extra < least:
        return None
    return LargeStep(int(number[rows[highest]]), extra, kept=False, phase=None)
