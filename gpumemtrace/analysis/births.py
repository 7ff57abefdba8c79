"""Where certain allocs come from: step, phase, thread and time of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["Births", "find_births"]


@dataclass(frozen=True)
class Births:
    """A row per alloc that was asked for, in the order asked.

    ``event``, ``time_ns``, ``step``: int64; ``phase``: int32, index into `Trace.phase_names`, -1 =
    none; ``thread``: uint32.
    """

    event: npt.NDArray[np.int64]
    time_ns: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]
    phase: npt.NDArray[np.int32]
    thread: npt.NDArray[np.uint32]


def find_births(trace: TraceData, allocs: npt.ArrayLike) -> Births:
    """Look up allocs by their numbers (see `segments.Blocks`); reads as far as the last of them.

    For a slice, allocs before it count too, and have event -1.
    """
    wanted = np.asarray(allocs, np.int64)
    births = Births(
        event=np.full(len(wanted), -1, np.int64),
        time_ns=np.zeros(len(wanted), np.int64),
        step=np.zeros(len(wanted), np.int64),
        phase=np.full(len(wanted), -1, np.int32),
        thread=np.zeros(len(wanted), np.uint32),
    )
    order = np.argsort(wanted, kind="stable")
    ascending = wanted[order]
    first = 0
    if not len(wanted):
        return births
    for batch in trace.chunks(lead_in=True):
        if first > ascending[-1]:
            break
        is_alloc = batch.raw["kind"] == Kind.ALLOC
        count = int(np.count_nonzero(is_alloc))
        begin, end = np.searchsorted(ascending, [first, first + count])
        if end > begin:
            rows = np.flatnonzero(is_alloc)[ascending[begin:end] - first]
            to = order[begin:end]
            if not batch.is_lead_in:
                births.event[to] = batch.events_before(rows)
            births.time_ns[to] = batch.raw["time_ns"][rows]
            births.step[to] = batch.step[rows]
            births.phase[to] = batch.phase[rows]
            births.thread[to] = batch.raw["thread"][rows]
        first += count
    return births
