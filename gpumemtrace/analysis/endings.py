"""How the program ended, as far as the recorder saw it, and which requests failed before."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gpumemtrace.analysis.peaks import Peak
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["ErrorAtEnd", "describe_damage", "find_error", "find_failures"]

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


def find_error(trace: TraceData) -> ErrorAtEnd | None:
    """Return the error with which the whole run ended; None if it had none, or nobody knows."""
    error = trace.footer.get("error")
    if not isinstance(error, dict):
        return None
    return ErrorAtEnd(str(error.get("type", "")), str(error.get("message", "")))


def find_failures(trace: TraceData, device: int) -> tuple[Peak, ...]:
    """Return the requests that the device could not serve (out of memory), in order."""
    failed = trace.records(Kind.ALLOC_FAILED)
    return tuple(
        Peak(
            size_bytes=int(failed["size_bytes"][row]),
            time_ns=int(failed["time_ns"][row]),
            event=int(failed["event"][row]),
            step=int(failed["step"][row]),
            phase=trace.phase_name(int(failed["phase"][row])),
        )
        for row in np.flatnonzero(failed["device"] == device)
    )


def describe_damage(trace: TraceData) -> str | None:
    """Return what is missing in a trace, in words, so that no figure seems surer than it is."""
    problems = [problem for problem in trace.problems if problem.kind != "not_closed"]
    parts = [f"{problem.message} (at byte {problem.offset:,})" for problem in problems[:1]]
    if len(problems) > 1:
        parts.append(f"{len(problems) - 1:,} more like it")
    if trace.dropped_events:
        parts.append(f"{trace.dropped_events:,} events were lost")
    if not parts and not trace.complete:
        parts.append("it was not closed: its writer was killed, or is still writing")
    return "; ".join(parts) if parts else None
