"""The user's own rules over what the categories of a trace would be without."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.category_rules import CATEGORY_NAMES, CategoryRule
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["match_rules"]

_NEVER = np.iinfo(np.int64).max


def match_rules(
    trace: TraceData, rules: Sequence[CategoryRule]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint8]]:
    """Return which allocs of the *whole* trace a rule is true of, and the category that it names.

    Both have a row per alloc; the first rule that is true decides.
    """
    facts = _Facts(trace)
    is_matched = np.zeros(len(facts.phase), np.bool_)
    category = np.zeros(len(facts.phase), np.uint8)
    for rule in rules:
        mine = facts.are_true(rule, trace) & ~is_matched
        is_matched |= mine
        category[mine] = CATEGORY_NAMES.index(rule.name)
    return is_matched, category


class _Facts:
    """What rules ask of each alloc: phase of birth, requested bytes, age in steps, tag."""

    def __init__(self, trace: TraceData) -> None:
        pairing = _core.Pairing()
        phase, size, birth = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)], [np.zeros(0, "i8")]
        dead, death = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        self._tagged: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]] = []
        for batch in trace.whole.chunks():
            kind = batch.raw["kind"]
            partner = pairing.feed(batch.raw)
            is_alloc = kind == Kind.ALLOC
            phase.append(batch.phase[is_alloc])
            size.append(batch.raw["size_bytes"][is_alloc])
            birth.append(batch.step[is_alloc])
            ends = batch.is_event & (partner >= 0)
            dead.append(partner[ends])
            death.append(batch.step[ends])
            tags = batch.rows_of(Kind.TAG)
            tags = tags[partner[tags] >= 0]
            if len(tags):
                self._tagged.append((partner[tags], batch.raw["extra"][tags]))
        self.phase = np.concatenate(phase)
        self.size = np.concatenate(size)
        self.age = np.full(len(self.phase), _NEVER)
        number, step = np.concatenate(dead), np.concatenate(death)
        self.age[number] = step - np.concatenate(birth)[number]

    def are_true(self, rule: CategoryRule, trace: TraceData) -> npt.NDArray[np.bool_]:
        """Return of which allocs everything that ``rule`` asks is true."""
        found = np.ones(len(self.phase), np.bool_)
        if rule.phase is not None:
            names = trace.phase_names
            found &= self.phase == (names.index(rule.phase) if rule.phase in names else -2)
        if rule.min_bytes is not None:
            found &= self.size >= rule.min_bytes
        if rule.max_bytes is not None:
            found &= self.size <= rule.max_bytes
        if rule.min_age_steps is not None:
            found &= self.age >= rule.min_age_steps
        if rule.max_age_steps is not None:
            found &= self.age <= rule.max_age_steps
        if rule.tag is not None:
            found &= self._are_tagged(rule.tag, trace)
        return found

    def _are_tagged(self, pattern: str, trace: TraceData) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(self.phase), np.bool_)
        for number, name in self._tagged:
            for id in np.unique(name).tolist():
                if fnmatch.fnmatchcase(trace.text(id), pattern):
                    found[number[name == id]] = True
        return found
