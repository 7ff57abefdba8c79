"""How the program ended, as far as the recorder saw it, and which requests failed before."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gpumemtrace.analysis.peaks import Peak
from gpumemtrace.records import Records
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData
from gpumemtrace.trace_file import Problem
from gpumemtrace.units import format_bytes, format_count

__all__ = [
    "ErrorAtEnd",
    "OutOfMemory",
    "describe_damage",
    "describe_losses",
    "describe_out_of_memory",
    "find_error",
    "find_failures",
    "find_out_of_memory",
]

_OUT_OF_MEMORY = ("out of memory", "alloc_failed")


@dataclass(frozen=True)
class ErrorAtEnd:
    """The exception that nothing caught: the name of its type, and what it said."""

    type: str
    message: str

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    @property
    def is_pytorch_out_of_memory(self) -> bool:
        """Whether it is PyTorch's own error for a request that its allocator could not serve."""
        return "OutOfMemoryError" in self.type

    @property
    def is_out_of_memory(self) -> bool:
        """Whether memory was what was missing, also to a library that doesn't ask PyTorch."""
        return self.is_pytorch_out_of_memory or self.says(*_OUT_OF_MEMORY)

    def says(self, *words: str) -> bool:
        """Return whether one of ``words`` (lower case) is in the message."""
        message = self.message.lower()
        return any(word in message for word in words)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return asdict(self) | {"is_out_of_memory": self.is_out_of_memory}


@dataclass(frozen=True)
class OutOfMemory:
    """Requests that could not be served: how many, and the last of them, on ``device``.

    ``error``: with which the program ended for it; None if it went on, or nobody knows. ``last`` is
    None when the program ended for want of memory that it had not asked PyTorch for.
    """

    failed: int
    device: int | None
    last: Peak | None
    error: ErrorAtEnd | None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        last = self.last
        return {
            "failed": self.failed,
            "device": self.device,
            "last": None
            if last is None
            else {
                "requested_bytes": last.size_bytes,
                "time_s": last.time_ns / 1e9,
                "step": last.step,
                "phase": last.phase,
                "event": last.event,
            },
            "error": None if self.error is None else self.error.to_dict(),
        }


def find_error(trace: TraceData) -> ErrorAtEnd | None:
    """Return the error with which the whole run ended; None if it had none, or nobody knows."""
    error = trace.footer.get("error")
    if not isinstance(error, dict):
        return None
    return ErrorAtEnd(str(error.get("type", "")), str(error.get("message", "")))


def find_failures(trace: TraceData, device: int) -> tuple[Peak, ...]:
    """Return the requests that the device could not serve (out of memory), in order."""
    failed = trace.records(Kind.ALLOC_FAILED)
    rows = np.flatnonzero(failed["device"] == device).tolist()
    return tuple(_failure(trace, failed, row) for row in rows)


def find_out_of_memory(trace: TraceData, device: int | None = None) -> OutOfMemory | None:
    """Return what a device (None: any) could not serve; None if it served every request.

    Where the program ended for want of memory and no request had failed, nobody knows of which
    device: then it counts for each of them. A slice knows of what is in it alone.
    """
    error = find_error(trace)
    if error is not None and not error.is_out_of_memory:
        error = None
    failed = trace.records(Kind.ALLOC_FAILED)
    is_mine = np.ones(len(failed["device"]), np.bool_)
    rows = np.flatnonzero(is_mine if device is None else failed["device"] == device).tolist()
    if not rows:
        if error is None or len(is_mine) or trace.whole is not trace:
            return None
        return OutOfMemory(0, device, None, error)
    # Of several devices, the program died of the last request of all.
    every = failed if trace.whole is trace else trace.whole.records(Kind.ALLOC_FAILED)
    is_last = error is not None and failed["record"][rows[-1]] == every["record"][-1]
    return OutOfMemory(
        failed=len(rows),
        device=int(failed["device"][rows[-1]]),
        last=_failure(trace, failed, rows[-1]),
        error=error if is_last else None,
    )


def _failure(trace: TraceData, failed: Records, row: int) -> Peak:
    return Peak(
        size_bytes=int(failed["size_bytes"][row]),
        time_ns=int(failed["time_ns"][row]),
        event=int(failed["event"][row]),
        step=int(failed["step"][row]),
        phase=trace.phase_name(int(failed["phase"][row])),
    )


def describe_out_of_memory(found: OutOfMemory) -> str:
    """Return what failed, as a clause: ``128.0 MiB in forward, step 38; it ended there``."""
    if found.last is None:
        return f"it ended with {found.error}"
    last = found.last
    where = f"{last.phase}, step {last.step:,}" if last.phase else f"step {last.step:,}"
    parts = [f"{format_bytes(last.size_bytes)} in {where}"]
    if found.failed > 1:
        parts.append(f"{format_count(found.failed - 1, 'request')} failed before it")
    parts.append("it ended there" if found.error is not None else "it went on")
    return "; ".join(parts)


def describe_damage(trace: TraceData) -> str | None:
    """Return what is missing in a trace, in words, so that no figure seems surer than it is."""
    told_otherwise = ("not_closed", "recovered")
    problems = [problem for problem in trace.problems if problem.kind not in told_otherwise]
    parts = [_with_place(problem) for problem in problems[:1]]
    if len(problems) > 1:
        parts.append(f"{len(problems) - 1:,} more like it")
    if trace.dropped_events:
        parts.append(_lost(trace.dropped_events))
    if not parts and not trace.complete and "recovered" not in trace.footer:
        parts.append("it was not closed: its writer was killed, or is still writing")
    return "; ".join(parts) if parts else None


def _with_place(problem: Problem) -> str:
    at = f" (at byte {problem.offset:,})" if problem.offset >= 0 else ""
    return f"{problem.message}{at}"


def describe_losses(dropped_events: int) -> str:
    """Return what it means that so many events were lost."""
    return (
        f"{_lost(dropped_events)}: figures are uncertain from each gap to the next reading of the "
        "allocator's counters"
    )


def _lost(count: int) -> str:
    return f"{format_count(count, 'event')} {'was' if count == 1 else 'were'} lost"
