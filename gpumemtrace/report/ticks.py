"""Times as whole parts of the run: they pack well, and are finer than any view."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.timeline import Timeline

__all__ = ["TICKS", "ticks_of"]

TICKS = 1 << 21


def ticks_of(timeline: Timeline, time_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return ``time_ns`` in parts of the run, 0 at its beginning and `TICKS` at its end."""
    span = max(timeline.end_ns - timeline.start_ns, 1)
    part = (time_ns - timeline.start_ns).astype(np.float64) / span
    return np.rint(np.clip(part, 0, 1) * TICKS).astype(np.int64)
