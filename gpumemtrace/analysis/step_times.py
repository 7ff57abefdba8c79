"""How long steps and phases take, which steps are slow, and what the allocator did meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.driver_time import DriverFinder, DriverTime, DriverUse
from gpumemtrace.analysis.lines import feed_lines
from gpumemtrace.html_tables import html_table
from gpumemtrace.marks import PhaseSpans, Steps
from gpumemtrace.trace_data import TraceData
from gpumemtrace.units import format_duration

__all__ = ["SlowStep", "StepTimes", "find_step_times", "time_steps"]

# A step is slow from so many (robust) standard deviations above the median on, and so much of it.
_DEVIATIONS = 5
_LEAST_SHARE = 0.1
# The driver explains a slow step if it took so much of what was beyond the median.
_EXPLAINS = 0.5
_NOTHING = DriverUse(0, 0, 0, 0, 0, 0)


@dataclass(frozen=True)
class SlowStep:
    """A step that took ``extra_ns`` longer than the median.

    ``phase``: the one that took most of it longer than usual; None = outside of any. ``driver``:
    what the allocator did in the driver during it. ``cause``: ``retry``, ``empty_cache`` or
    ``segments`` if that took at least half of the extra time, else None.
    """

    step: int
    duration_ns: int
    extra_ns: int
    phase: str | None
    driver: DriverUse
    cause: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return {
            "step": self.step,
            "duration_s": self.duration_ns / 1e9,
            "extra_s": self.extra_ns / 1e9,
            "phase": self.phase,
            "driver_s": self.driver.duration_ns / 1e9,
            "segments": self.driver.segments,
            "retries": self.driver.retries,
            "emptied": self.driver.emptied,
            "cause": self.cause,
        }


@dataclass(frozen=True)
class StepTimes:
    """The completed steps that are told one by one; ``merged_steps``: how many others there are,
    which share their summary with their neighbours, so that nobody knows how long each took.

    ``number``, ``duration_ns``: int64, per step. ``phase_ns``: int64 (steps, phases + 1), how long
    each phase was the innermost one on the driving thread; the last column is for no phase.
    ``slow``: steps beyond the median by 5 robust standard deviations (1.4826 times the median
    absolute deviation) and a tenth of it.
    """

    number: npt.NDArray[np.int64]
    duration_ns: npt.NDArray[np.int64]
    phases: tuple[str, ...]
    phase_ns: npt.NDArray[np.int64]
    slow: tuple[SlowStep, ...]
    driver: DriverTime
    merged_steps: int = 0

    @property
    def median_ns(self) -> float:
        """The median of a step's time; 0 without steps."""
        return float(np.median(self.duration_ns)) if len(self.duration_ns) else 0.0

    @property
    def p95_ns(self) -> float:
        """What 95 % of the steps stay below; 0 without steps."""
        return float(np.percentile(self.duration_ns, 95)) if len(self.duration_ns) else 0.0

    def _repr_html_(self) -> str:
        """Show itself in a notebook: slow steps, the slowest first."""
        merged = f" ({self.merged_steps:,} more only in sums)" if self.merged_steps else ""
        title = (
            f"{len(self.number):,} steps{merged}: median {format_duration(self.median_ns / 1e9)}, "
            f"95th percentile {format_duration(self.p95_ns / 1e9)}, {len(self.slow):,} slow"
        )
        rows = [
            (
                f"{step.step:,}",
                format_duration(step.duration_ns / 1e9),
                format_duration(step.extra_ns / 1e9),
                step.phase or "",
                (step.cause or "").replace("_", " "),
            )
            for step in sorted(self.slow, key=lambda step: -step.duration_ns)
        ]
        columns = ["slow step", "took", "beyond the median", "mostly in", "because of"]
        return html_table(title, columns, rows)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        columns = [*self.phases, None]
        total_ns = self.phase_ns.sum(axis=0)
        return {
            "steps": len(self.number),
            "merged_steps": self.merged_steps,
            "median_s": self.median_ns / 1e9,
            "p95_s": self.p95_ns / 1e9,
            "phases": [
                {
                    "name": name,
                    "median_s": float(np.median(self.phase_ns[:, i])) / 1e9,
                    "p95_s": float(np.percentile(self.phase_ns[:, i], 95)) / 1e9,
                    "total_s": int(total_ns[i]) / 1e9,
                }
                for i, name in enumerate(columns)
                if total_ns[i]
            ],
            "slow": [step.to_dict() for step in self.slow],
            "driver": [
                {
                    "phase": phase,
                    "duration_s": use.duration_ns / 1e9,
                    "segments": use.segments,
                    "segment_s": use.segment_ns / 1e9,
                    "retries": use.retries,
                    "retry_s": use.retry_ns / 1e9,
                    "emptied": use.emptied,
                    "emptied_s": use.emptied_ns / 1e9,
                }
                for phase, use in self.driver.by_phase.items()
            ],
            "flushes": [flush.to_dict() for flush in self.driver.flushes],
        }


def find_step_times(trace: TraceData) -> StepTimes:
    """Time steps and phases, in one pass."""
    driver = DriverFinder(trace)
    feed_lines(trace, driver)
    return time_steps(trace, driver.finish())


def time_steps(trace: TraceData, driver: DriverTime) -> StepTimes:
    """Time steps and phases, with what one pass shared with other analyses found in the driver."""
    steps = trace.steps.singles
    spans = trace.phases
    duration = steps.end_ns - steps.start_ns
    phase_ns = _phase_times(steps, spans, trace.phase_names, trace.driving_thread)
    return StepTimes(
        number=steps.number,
        duration_ns=duration,
        phases=trace.phase_names,
        phase_ns=phase_ns,
        slow=_slow_steps(steps, duration, phase_ns, trace, driver),
        driver=driver,
        merged_steps=trace.steps.total - len(steps),
    )


def _phase_times(
    steps: Steps, spans: PhaseSpans, names: tuple[str, ...], thread: int
) -> npt.NDArray[np.int64]:
    result = np.zeros((len(steps), len(names) + 1), np.int64)
    if not len(steps):
        return result
    mine = (spans.thread == thread) & (spans.end_ns > spans.start_ns)
    index = {name: i for i, name in enumerate(names)}
    leaf = np.array([index[path[-1]] for path in spans.paths], np.int64)
    begin, end, path = spans.start_ns[mine], spans.end_ns[mine], spans.path[mine]
    # Between two neighbouring cuts there is one step (or none) and one phase (or none).
    cuts = np.unique(np.concatenate([steps.start_ns, steps.end_ns, begin, end]))
    at, width = cuts[:-1], np.diff(cuts)
    step = np.searchsorted(steps.start_ns, at, side="right") - 1
    is_inside = (step >= 0) & (at < steps.end_ns[step])
    phase = np.full(len(at), len(names))
    if len(begin):
        span = np.searchsorted(begin, at, side="right") - 1
        is_open = (span >= 0) & (at < end[span])
        phase[is_open] = leaf[path[span[is_open]]]
    np.add.at(result, (step[is_inside], phase[is_inside]), width[is_inside])
    return result


def _slow_steps(
    steps: Steps,
    duration: npt.NDArray[np.int64],
    phase_ns: npt.NDArray[np.int64],
    trace: TraceData,
    driver: DriverTime,
) -> tuple[SlowStep, ...]:
    if not len(duration):
        return ()
    median = float(np.median(duration))
    deviation = 1.4826 * float(np.median(np.abs(duration - median)))
    limit = median + max(_DEVIATIONS * deviation, _LEAST_SHARE * median)
    usual = np.median(phase_ns, axis=0)
    slow = []
    for row in np.flatnonzero(duration > limit).tolist():
        phase = int(np.argmax(phase_ns[row] - usual))
        use = driver.by_step.get(int(steps.number[row]), _NOTHING)
        extra = int(duration[row] - median)
        slow.append(
            SlowStep(
                step=int(steps.number[row]),
                duration_ns=int(duration[row]),
                extra_ns=extra,
                phase=trace.phase_name(phase) if phase < len(trace.phase_names) else None,
                driver=use,
                cause=_cause(use, extra),
            )
        )
    return tuple(slow)


def _cause(use: DriverUse, extra_ns: int) -> str | None:
    if use.duration_ns < _EXPLAINS * extra_ns:
        return None
    parts = {"retry": use.retry_ns, "empty_cache": use.emptied_ns, "segments": use.segment_ns}
    return max(parts, key=lambda name: parts[name])
