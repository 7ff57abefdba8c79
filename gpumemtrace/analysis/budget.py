"""Does a run keep within its memory budget? Each rule with what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpumemtrace.analysis.answers import Answers, DeviceAnswers, find_answers
from gpumemtrace.analysis.budget_rules import GrowthRule, LimitRule, Rule, RulesError
from gpumemtrace.analysis.growth import Growth, find_growth
from gpumemtrace.analysis.growth_rate import LEAST_STEPS
from gpumemtrace.trace_data import TraceData

__all__ = ["Budget", "Finding", "check_budget"]


@dataclass(frozen=True)
class Finding:
    """One rule on one device of one trace.

    ``measured`` and ``limit``: bytes, for a growth rule bytes per step. ``step``, ``phase``: where
    it was reached, None where that is no instant.
    """

    rule: str
    path: str | None
    device: int
    measured: float
    limit: int
    step: int | None = None
    phase: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether the limit was exceeded."""
        return self.measured > self.limit

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return {
            "rule": self.rule,
            "path": self.path,
            "device": self.device,
            "measured": self.measured,
            "limit": self.limit,
            "over": self.is_over,
            "step": self.step,
            "phase": self.phase,
        }


@dataclass(frozen=True)
class Budget:
    """What every rule found, in the order of the rules."""

    findings: tuple[Finding, ...]

    @property
    def is_within(self) -> bool:
        """Whether no rule was broken."""
        return not any(finding.is_over for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values. Keys are added by later versions, none goes away."""
        return {
            "within": self.is_within,
            "findings": [finding.to_dict() for finding in self.findings],
        }


def check_budget(traces: Sequence[TraceData], rules: Iterable[Rule]) -> Budget:
    """Measure what each rule asks of each trace that it is about.

    Raises `RulesError` for a rule that is about nothing in these traces: a phase, rank, device or
    step that does not occur. A budget that can't fail is no budget.
    """
    readings = [_Reading(trace) for trace in traces]
    findings: list[Finding] = []
    for rule in rules:
        mine = [reading for reading in readings if rule.rank in (None, reading.rank)]
        if not mine:
            ranks = ", ".join(str(reading.rank) for reading in readings)
            raise RulesError(f"{rule.name}: no trace of rank {rule.rank}: there are {ranks}")
        found = [finding for reading in mine for finding in reading.measure(rule)]
        if not found:
            raise RulesError(f"{rule.name}: {_why_nothing(rule, mine)}")
        findings += found
    return Budget(tuple(findings))


class _Reading:
    """One trace; each part of it that rules are about is read once."""

    def __init__(self, trace: TraceData) -> None:
        self.trace = trace
        rank = trace.run_record.get("rank")
        self.rank = rank if isinstance(rank, int) else 0
        self._answers: dict[tuple[int, int] | None, Answers] = {}
        self._growths: dict[int | None, Growth] = {}

    def measure(self, rule: Rule) -> Iterator[Finding]:
        if isinstance(rule, GrowthRule):
            yield from self._measure_growth(rule)
        else:
            for device in self.answers(rule.steps).devices:
                if rule.device in (None, device.summary.device):
                    yield from self._measure_limit(rule, device)

    def answers(self, steps: tuple[int, int] | None) -> Answers:
        if steps not in self._answers:
            part = self.trace
            if steps is not None:
                try:
                    part = self.trace.slice(steps=steps)
                except ValueError as error:
                    raise RulesError(f"{self.trace.path}: {error}") from None
            self._answers[steps] = find_answers(part)
        return self._answers[steps]

    def _measure_growth(self, rule: GrowthRule) -> Iterator[Finding]:
        if rule.from_step not in self._growths:
            self._growths[rule.from_step] = find_growth(self.trace, from_step=rule.from_step)
        for device in self._growths[rule.from_step].devices:
            # In too few steps no growth is seen, which is not the same as none.
            if rule.device in (None, device.device) and device.from_step is not None:
                yield Finding(
                    rule.name,
                    self.trace.path,
                    device.device,
                    device.bytes_per_step,
                    rule.max_bytes_per_step,
                    step=device.first_step,
                )

    def _measure_limit(self, rule: LimitRule, answers: DeviceAnswers) -> Iterator[Finding]:
        device, phase = answers.summary, rule.phase
        step: int | None = None
        measured: int | None
        if rule.phase is not None:
            use = next((u for u in device.phases.phases if u.name == rule.phase), None)
            measured = None if use is None or not (use.count or use.time_s) else use.peak[rule.line]
        else:
            peak = device.peaks.lines[rule.line]
            measured = None if peak is None else peak.size_bytes
            step, phase = (None, None) if peak is None else (peak.step, peak.phase)
        if rule.category is not None:
            measured = answers.category_bytes.get(rule.category, 0)
        if measured is not None:
            yield Finding(
                rule.name, self.trace.path, device.device, measured, rule.max_bytes, step, phase
            )


def _why_nothing(rule: Rule, readings: Sequence[_Reading]) -> str:
    summaries = [reading.answers(None).summary for reading in readings]
    devices = sorted({device.device for s in summaries for device in s.devices})
    if rule.device is not None and rule.device not in devices:
        return f"no device {rule.device}: there are {', '.join(map(str, devices)) or 'none'}"
    if isinstance(rule, LimitRule) and rule.phase is not None:
        names = sorted({u.name for s in summaries for d in s.devices for u in d.phases.phases})
        if rule.phase not in names:
            return f"no phase {rule.phase!r}: there are {', '.join(names) or 'none'}"
        return f"the phase {rule.phase!r} was not open, or its {rule.line} bytes are not known"
    if isinstance(rule, LimitRule):
        return f"{rule.line} bytes are not known in this trace"
    steps = max((len(reading.trace.steps) for reading in readings), default=0)
    return f"{steps} steps are too few to tell: more than {LEAST_STEPS} must be judged"
