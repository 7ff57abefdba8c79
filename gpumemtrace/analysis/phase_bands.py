"""Which phase the thread that trains was in, over time, for a strip below a picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpumemtrace.trace_data import TraceData

__all__ = ["PhaseBands", "find_phase_bands"]

# Nobody tells more phases than this apart by colour, and each costs a row of `share`.
_MOST_NAMES = 60
_MOST_SHARE_COLUMNS = 4096


@dataclass(frozen=True)
class PhaseBands:
    """The phases of the driving thread over time.

    ``names``: of many only those that took most of the time, the rest is one name more; ``phase``
    int32 (index into ``names``), ``start_ns``, ``end_ns`` int64: one row per stretch. ``share``:
    float64 array (at most 4,096 columns of equal width, names), the part of each column's time.
    """

    names: tuple[str, ...]
    phase: npt.NDArray[np.int32]
    start_ns: npt.NDArray[np.int64]
    end_ns: npt.NDArray[np.int64]
    share: npt.NDArray[np.float64]


def find_phase_bands(trace: TraceData, *, columns: int) -> PhaseBands:
    """Return the phases of ``trace`` over its time; ``columns``: the width of the picture."""
    spans = trace.phases
    mine = spans.thread == trace.driving_thread
    index = {name: i for i, name in enumerate(trace.phase_names)}
    leaf = np.array([index[path[-1]] for path in spans.paths], np.int32)
    phase = leaf[spans.path[mine]] if len(leaf) else np.zeros(0, np.int32)
    start, end = spans.start_ns[mine], spans.end_ns[mine]
    names, phase = _join_short(trace.phase_names, phase, end - start)
    start_ns, end_ns = trace.time_span_ns
    columns = min(columns, _MOST_SHARE_COLUMNS)
    edges = np.linspace(start_ns, max(end_ns, start_ns + 1), columns + 1)
    share = np.zeros((columns, len(names)))
    for i in range(len(names)):
        own = phase == i
        if own.any():
            # Time spent in the phase up to each edge; between its stretches it stands still.
            corners = np.stack([start[own], end[own]], axis=1).ravel()
            spent = np.cumsum(end[own] - start[own])
            before = np.stack([spent - (end[own] - start[own]), spent], axis=1).ravel()
            share[:, i] = np.diff(np.interp(edges, corners, before)) / np.diff(edges)
    return PhaseBands(names, phase, start, end, share)


def _join_short(
    names: tuple[str, ...], phase: npt.NDArray[np.int32], time_ns: npt.NDArray[np.int64]
) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """Put the phases that took the least time together, where there are too many."""
    if len(names) <= _MOST_NAMES:
        return names, phase
    total_ns = np.zeros(len(names), np.int64)
    np.add.at(total_ns, phase, time_ns)
    kept = np.sort(np.argsort(-total_ns, kind="stable")[:_MOST_NAMES])
    number = np.full(len(names), _MOST_NAMES, np.int32)
    number[kept] = np.arange(_MOST_NAMES)
    rest = f"{len(names) - _MOST_NAMES:,} other phases"
    return (*(names[i] for i in kept.tolist()), rest), number[phase]
