"""Is this trace whole, and can all of it be true?"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from gpumemtrace.analysis.aged import AgedParts, find_aged
from gpumemtrace.analysis.facts import FlightRecording, flight_recording
from gpumemtrace.analysis.lines import LineStream, feed_lines
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["CheckResult", "Diagnostic", "check_trace", "judge"]

# Exit status by verdict: a contract, scripts rely on it.
EXIT_STATUS = {"good": 0, "empty": 3, "truncated": 4, "recovered": 4, "corrupt": 5}

# What is wrong with a file whose readable part is nevertheless whole: it ends too early.
_TRUNCATED = {"truncated", "not_closed", "not_recovered", "damaged_index"}
# A newer writer's additions, which this reader may skip; that a killed writer's last events were
# found again.
_HARMLESS = {"unknown_chunk", "recovered"}


@dataclass(frozen=True)
class Diagnostic:
    """One finding. ``event``: number of the event it is about, -1 = none; ``offset``: byte in the
    file, -1 = none."""

    kind: str
    message: str
    event: int = -1
    offset: int = -1


@dataclass(frozen=True)
class CheckResult:
    """``verdict``: ``good``, ``empty`` (no alloc in it), ``truncated`` (ends early; what was
    recovered is sound), ``recovered`` (its process was killed; all that it had recorded is there)
    or ``corrupt`` (bytes are damaged, or events contradict each other).

    ``counts``: anomaly -> how many; ``diagnostics`` names the first of each kind.
    ``live_blocks``: blocks in use at the end. ``unseen_allocs``: frees of blocks whose alloc was
    lost in a gap or came before the trace. ``dropped_events``: lost, as the trace itself says.
    ``flight``: what a flight recording did not keep, None for any other trace.
    ``aged``: what was summarised to keep the file small; that is no fault.
    """

    verdict: str
    diagnostics: tuple[Diagnostic, ...]
    counts: dict[str, int]
    allocs: int
    frees: int
    live_blocks: int
    unseen_allocs: int
    dropped_events: int
    aged: AgedParts
    complete: bool
    flight: FlightRecording | None

    @property
    def exit_status(self) -> int:
        """0 good, 3 empty, 4 truncated or recovered, 5 corrupt."""
        return EXIT_STATUS[self.verdict]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {
            "diagnostics": [asdict(diagnostic) for diagnostic in self.diagnostics],
            "aged": self.aged.to_dict(),
            "exit_status": self.exit_status,
        }


def check_trace(trace: TraceData) -> CheckResult:
    """Read the whole trace and judge it."""
    return judge(trace, feed_lines(trace))


def judge(trace: TraceData, stream: LineStream) -> CheckResult:
    """Judge a trace that ``stream`` has just read to its end."""
    counts = trace.marks.counts
    diagnostics = [
        Diagnostic(problem.kind, problem.message, offset=problem.offset)
        for problem in trace.problems
    ]
    diagnostics += [_anomaly(*anomaly) for anomaly in stream.anomalies]
    backward = _steps_backward(trace)
    diagnostics += backward
    kinds = {problem.kind for problem in trace.problems} - _HARMLESS
    anomalies = {kind: count for kind, count in stream.anomaly_counts.items() if count}
    if backward:
        anomalies["step_order"] = len(backward)
    if anomalies or kinds - _TRUNCATED:
        verdict = "corrupt"
    elif counts[Kind.ALLOC] == 0:
        verdict = "empty"
    elif "recovered" in trace.footer and not kinds:
        verdict = "recovered"
    elif kinds or not trace.complete:
        verdict = "truncated"
    else:
        verdict = "good"
    return CheckResult(
        verdict=verdict,
        diagnostics=tuple(diagnostics),
        counts=anomalies,
        allocs=int(counts[Kind.ALLOC]),
        frees=int(counts[Kind.FREE]),
        live_blocks=stream.live_blocks,
        unseen_allocs=stream.unseen_allocs,
        dropped_events=trace.dropped_events,
        aged=find_aged(trace),
        complete=trace.complete,
        flight=flight_recording(trace.run_record),
    )


def _anomaly(kind: str, device: int, address: int, event: int, other: int) -> Diagnostic:
    what = {
        "double_alloc": f"allocated while in use (since event {other})",
        "unknown_free": "freed, but nothing had allocated it",
        "size_mismatch": f"freed with another size than event {other} allocated",
    }[kind]
    message = f"event {event}: {address:#x} on device {device} {what}"
    return Diagnostic(kind, message, event=event)


def _steps_backward(trace: TraceData) -> list[Diagnostic]:
    marks = trace.marks.of(Kind.STEP)
    number = marks["size_bytes"]
    return [
        Diagnostic(
            "step_order",
            f"step {number[i + 1]} begins after step {number[i]}",
            event=int(marks["event"][i + 1]),
        )
        for i in np.flatnonzero(np.diff(number) <= 0)
    ]
