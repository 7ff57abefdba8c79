"""Does a run keep within its memory budget? Each rule with what was measured.

A rule that can't be told is a finding too, and hides no other. What a trace has lost makes a figure
doubtful, not unknown: see `Budget.doubts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpumemtrace.analysis.answers import Answers, DeviceAnswers, find_answers
from gpumemtrace.analysis.budget_findings import Budget, Doubt, Finding
from gpumemtrace.analysis.budget_rules import FailureRule, GrowthRule, LimitRule, Rule
from gpumemtrace.analysis.endings import (
    OutOfMemory,
    describe_damage,
    find_error,
    find_out_of_memory,
)
from gpumemtrace.analysis.growth import Growth, find_growth
from gpumemtrace.analysis.growth_rate import LEAST_STEPS
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData
from gpumemtrace.units import format_bytes

__all__ = ["Budget", "Doubt", "Finding", "check_budget"]

_NO_FAILURE = FailureRule(name="out of memory", max_requests=0)


def check_budget(traces: Sequence[TraceData], rules: Iterable[Rule]) -> Budget:
    """Measure what each rule asks of each trace that it is about.

    A rule that is about nothing in these traces (a phase, rank, device or step that does not occur)
    is a finding that can't be told: a budget that can't fail is no budget. Requests that could not
    be served are over the budget, whatever the limits are: the run needed more than it got. A
    `FailureRule` can allow some, unless the program died of them.
    """
    rules = tuple(rules)
    readings = [_Reading(trace) for trace in traces]
    failures = [rule for rule in rules if isinstance(rule, FailureRule)]
    findings = [found for reading in readings for found in reading.failures(failures)]
    for rule in rules:
        findings += _judge(rule, readings)
    doubts = tuple(
        Doubt(reading.trace.path, what) for reading in readings for what in reading.doubts()
    )
    return Budget(tuple(findings), doubts)


def _judge(rule: Rule, readings: Sequence[_Reading]) -> list[Finding]:
    mine = [reading for reading in readings if rule.rank in (None, reading.rank)]
    if not mine:
        ranks = ", ".join(str(reading.rank) for reading in readings)
        return [_unknown(rule, f"no trace of rank {rule.rank}: there are {ranks}")]
    found = {reading: list(reading.measure(rule)) for reading in mine}
    findings = [finding for reading in mine for finding in found[reading]]
    silent = [reading for reading in mine if not found[reading]]
    if not findings:
        # The same reason for each of them, as a rule: said once.
        return [_unknown(rule, silent[0].why_nothing(rule, silent))]
    # A phase that only rank 0 has, such as eval, is no reason to doubt the others.
    findings += [
        _unknown(rule, reading.why_nothing(rule, [reading]), reading)
        for reading in silent
        if reading.has_what_it_names(rule)
    ]
    return findings


def _unknown(rule: Rule, why: str, reading: _Reading | None = None) -> Finding:
    return Finding(
        rule=rule.name,
        limit=rule.limit,
        unit=rule.unit,
        path=None if reading is None else reading.trace.path,
        note=why,
    )


class _Reading:
    """One trace; each part of it that rules are about is read once."""

    def __init__(self, trace: TraceData) -> None:
        self.trace = trace
        rank = trace.run_record.get("rank")
        self.rank = rank if isinstance(rank, int) else 0
        self._answers: dict[tuple[int, int] | None, Answers | str] = {}
        self._growths: dict[int | None, Growth] = {}

    def doubts(self) -> Iterator[str]:
        """What makes figures of this trace too low, perhaps."""
        if damage := describe_damage(self.trace):
            yield damage
        error = find_error(self.trace)
        if error is not None and not error.is_out_of_memory:
            yield f"the program ended with an error: {error}"

    def measure(self, rule: Rule) -> Iterator[Finding]:
        """What the rule finds here; nothing if that can't be told."""
        if isinstance(rule, FailureRule):
            if rule.device in (None, *self._devices()):
                yield self._failures(rule, rule.device)
        elif isinstance(rule, GrowthRule):
            yield from self._measure_growth(rule)
        else:
            answers = self.answers(rule.steps)
            for device in () if isinstance(answers, str) else answers.devices:
                if rule.device in (None, device.summary.device):
                    yield from self._measure_limit(rule, device)

    def answers(self, steps: tuple[int, int] | None) -> Answers | str:
        """The answers of these steps, or why there are none."""
        if steps not in self._answers:
            try:
                part = self.trace if steps is None else self.trace.slice(steps=steps)
                self._answers[steps] = find_answers(part)
            except ValueError as error:
                self._answers[steps] = str(error)
        return self._answers[steps]

    def failures(self, rules: Sequence[FailureRule]) -> Iterator[Finding]:
        """Requests that could not be served where no rule allows any."""
        mine = [rule for rule in rules if rule.rank in (None, self.rank)]
        if any(rule.device is None for rule in mine):
            return
        failed = self.trace.records(Kind.ALLOC_FAILED)["device"].tolist()
        for device in sorted(set(failed) - {rule.device for rule in mine}):
            yield self._failures(_NO_FAILURE, device)
        if not failed and find_out_of_memory(self.trace) is not None:
            yield self._failures(_NO_FAILURE, None)

    def _failures(self, rule: FailureRule, device: int | None) -> Finding:
        found = find_out_of_memory(self.trace, device) or OutOfMemory(0, device, None, None)
        last, notes = found.last, []
        if last is not None:
            notes.append(f"{format_bytes(last.size_bytes)} could not be had")
        if found.error is not None:
            notes.append(f"the run ended with {found.error.type}")
        return Finding(
            rule=rule.name,
            limit=rule.limit,
            measured=found.failed,
            unit=rule.unit,
            path=self.trace.path,
            device=found.device,
            step=None if last is None else last.step,
            phase=None if last is None else last.phase,
            note="; ".join(notes) or None,
            ended_the_run=found.error is not None,
        )

    def _measure_growth(self, rule: GrowthRule) -> Iterator[Finding]:
        if rule.from_step not in self._growths:
            self._growths[rule.from_step] = find_growth(self.trace, from_step=rule.from_step)
        for device in self._growths[rule.from_step].devices:
            # In too few steps no growth is seen, which is not the same as none.
            if rule.device in (None, device.device) and device.from_step is not None:
                yield Finding(
                    rule=rule.name,
                    limit=rule.limit,
                    measured=device.bytes_per_step,
                    unit=rule.unit,
                    path=self.trace.path,
                    device=device.device,
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
                rule=rule.name,
                limit=rule.limit,
                measured=measured,
                unit=rule.unit,
                path=self.trace.path,
                device=device.device,
                step=step,
                phase=phase,
                note=self._not_reached(rule),
            )

    def _not_reached(self, rule: LimitRule) -> str | None:
        """Say that the run ended before the last of the steps that the rule is about."""
        steps = self.trace.steps
        end = int((steps.number + steps.count).max(initial=0))
        if rule.steps is None or rule.steps[1] <= end:
            return None
        return f"of steps {rule.steps[0]} to {rule.steps[1] - 1} the run has those before {end}"

    def has_what_it_names(self, rule: Rule) -> bool:
        """Whether the rule's phase and device occur here, so that it ought to find something."""
        return rule.device in (None, *self._devices()) and (
            not isinstance(rule, LimitRule) or rule.phase in (None, *self._phases())
        )

    def _devices(self) -> list[int]:
        answers = self.answers(None)
        return [] if isinstance(answers, str) else [d.summary.device for d in answers.devices]

    def _phases(self) -> list[str]:
        answers = self.answers(None)
        found = () if isinstance(answers, str) else answers.summary.devices
        return [use.name for device in found for use in device.phases.phases]

    def why_nothing(self, rule: Rule, readings: Sequence[_Reading]) -> str:
        """Why the rule finds nothing in any of ``readings``, of which this is the first."""
        devices = sorted({device for reading in readings for device in reading._devices()})
        if not devices:
            return "nothing was allocated on any device"
        if rule.device is not None and rule.device not in devices:
            return f"no device {rule.device}: there are {', '.join(map(str, devices))}"
        if isinstance(rule, GrowthRule):
            steps = max(reading.trace.steps.total for reading in readings)
            return f"{steps} steps are too few to tell: more than {LEAST_STEPS} must be judged"
        assert isinstance(rule, LimitRule)
        answers = self.answers(rule.steps)
        if isinstance(answers, str):
            return answers
        if rule.phase is None:
            return f"{rule.line} bytes are not known in this trace"
        names = sorted({name for reading in readings for name in reading._phases()})
        if rule.phase not in names:
            return f"no phase {rule.phase!r}: there are {', '.join(names) or 'none'}"
        return f"the phase {rule.phase!r} was not open, or its {rule.line} bytes are not known"
