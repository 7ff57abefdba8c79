"""Which steps of a trace are in full detail, and which were summarised to keep the file small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData
from gpumemtrace.units import format_count

__all__ = ["AgedParts", "describe_ranges", "describe_steps", "find_aged"]


@dataclass(frozen=True)
class AgedParts:
    """What ageing (``max_disk``) has left of the older steps of a trace or slice.

    ``step``: int64, ascending, a summary each; several steps told as one have the number of the
    first. ``steps``: how many steps these stand for. ``span_ns``: int64 array (n, 2), the stretches
    of time that they take up. ``first``, ``last``: the lowest and highest summarised step, -1
    without one. ``detailed``: the steps in full detail, as ranges (first, last). ``merged_steps``:
    how many of the summarised steps share their summary with others, so that nothing is known of
    each, nor of phases; from ``first_single_step`` on none does.
    ``left_out_events``: allocs and frees that are not in the file any more, of blocks that came and
    went within their step; ``left_out_bytes``: what these allocs requested.
    """

    step: npt.NDArray[np.int64]
    steps: int
    span_ns: npt.NDArray[np.int64]
    last: int
    detailed: tuple[tuple[int, int], ...]
    merged_steps: int
    first_single_step: int
    left_out_events: int
    left_out_bytes: int

    def __bool__(self) -> bool:
        return len(self.step) > 0

    @property
    def first(self) -> int:
        """The lowest summarised step, -1 without one."""
        return int(self.step[0]) if len(self.step) else -1

    def covers(self, step: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of the given steps are summarised."""
        return np.isin(step, self.step)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values. Keys are added by later versions, none goes away."""
        return {
            "steps": self.steps,
            "summaries": len(self.step),
            "first_step": self.first if self else None,
            "last_step": self.last if self else None,
            "merged_steps": self.merged_steps,
            "left_out_events": self.left_out_events,
            "left_out_bytes": self.left_out_bytes,
            "detailed_steps": [list(bounds) for bounds in self.detailed],
        }


def describe_ranges(ranges: Sequence[tuple[int, int]], *, most: int = 8) -> str:
    """Return ranges of steps (first, last) in words: ``0-11, 500, 48,001-49,999``."""
    words = [f"{a:,}" if a == b else f"{a:,}-{b:,}" for a, b in ranges]
    if len(words) > most + 1:  # never in place of a single one, which is no longer
        left_out = len(words) - most
        words[most // 2 : -(most - most // 2)] = [f"… {left_out:,} more …"]
    return ", ".join(words) or "none"


def describe_steps(steps: int, aged: AgedParts) -> str:
    """Return the steps of a run in words: ``9,000 steps (8,424 in summary only)``."""
    kept = f" ({aged.steps:,} in summary only)" if aged.steps else ""
    return f"{format_count(steps, 'step')}{kept}"


def find_aged(trace: TraceData) -> AgedParts:
    """Say which steps are summarised, and which are in full detail; the unfinished one counts."""
    records = trace.records(Kind.AGED)
    step = np.unique(records["step"].astype(np.int64))
    if not len(step):
        return AgedParts(step, 0, np.zeros((0, 2), np.int64), -1, (), 0, 0, 0, 0)
    number, start_ns, end_ns = _rows(trace)
    is_aged = np.isin(number, step)
    at = np.flatnonzero(is_aged)
    runs = np.split(at, np.flatnonzero(np.diff(at) > 1) + 1)
    together = trace.marks.together
    last = int(step[-1])
    return AgedParts(
        step=step,
        steps=int(trace.marks.counts_of(step).sum()),
        span_ns=np.array([(start_ns[run[0]], end_ns[run[-1]]) for run in runs], np.int64),
        last=last + together.get(last, 1) - 1,
        detailed=_ranges(number[~is_aged]),
        merged_steps=sum(together.values()),
        first_single_step=max((a + count for a, count in together.items()), default=0),
        left_out_events=int(records["address"].sum() + records["stream"].sum()),
        left_out_bytes=int(records["size_bytes"].sum()),
    )


def _rows(
    trace: TraceData,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return number, start and end of each step, the unfinished last one too if it has events."""
    steps, marks = trace.steps, trace.marks
    begun = marks.of(Kind.STEP)
    open_from = int(begun["time_ns"][-1]) if len(begun["time_ns"]) else marks.first_ns
    open_number = int(begun["size_bytes"][-1]) if len(begun["time_ns"]) else 0
    has_open = marks.events > (int(steps.end_event[-1]) if len(steps) else 0)
    more = np.array([open_number] * has_open, np.int64)
    return (
        np.concatenate([steps.number, more]),
        np.concatenate([steps.start_ns, [open_from] * has_open]).astype(np.int64),
        np.concatenate([steps.end_ns, [marks.last_ns] * has_open]).astype(np.int64),
    )


def _ranges(number: npt.NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    if not len(number):
        return ()
    runs = np.split(number, np.flatnonzero(np.diff(number) != 1) + 1)
    return tuple((int(run[0]), int(run[-1])) for run in runs)
