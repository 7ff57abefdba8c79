"""Events that are missing in a trace: from when to when, how many, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass

from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["Loss", "find_losses"]


@dataclass(frozen=True)
class Loss:
    """Events that the recorder could not keep, or the reader not read, as one record tells them.

    ``start_ns``, ``end_ns``: the first and the last of them; ``alloc_bytes``: requested by allocs
    among them, ``frees``: how many were frees; both 0 where nobody counted them.
    """

    start_ns: int
    end_ns: int
    events: int
    alloc_bytes: int
    frees: int
    step: int
    phase: str | None


def find_losses(trace: TraceData) -> tuple[Loss, ...]:
    """Return the stretches of lost events, in order."""
    gaps = trace.records(Kind.GAP)
    return tuple(
        Loss(
            start_ns=int(gaps["time_ns"][row]) - int(gaps["extra"][row]),
            end_ns=int(gaps["time_ns"][row]),
            events=int(gaps["address"][row]),
            alloc_bytes=int(gaps["size_bytes"][row]),
            frees=int(gaps["stream"][row]),
            step=int(gaps["step"][row]),
            phase=trace.phase_name(int(gaps["phase"][row])),
        )
        for row in range(len(gaps["event"]))
        if gaps["address"][row]  # 0: nothing was lost, but what is in use was not known either
    )
