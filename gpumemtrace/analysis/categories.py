"""What each allocation is for: parameter, buffer, gradient, optimizer state, activation, …

Exact where the trace has tags (`gpumemtrace.watch`, `tag`, and what automatic phases tag at an
optimizer's first step). All else is told by rules from when a block was born and died, phase by
phase, and from sizes: a trained parameter has a gradient of its own size. Each block keeps the rule
that decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.analysis.lines import Lines
from gpumemtrace.analysis.own_categories import match_rules
from gpumemtrace.category_rules import CATEGORY_NAMES
from gpumemtrace.records import Batch
from gpumemtrace.trace_data import TraceData

__all__ = ["CATEGORY_NAMES", "RULES", "Categories", "CategoryFinder", "Rule", "find_categories"]

# The phases with a meaning for the rules; others count as what they are nested in. In the order of
# PhaseClass in csrc/compute/categories.h, which begins with "none of these".
_PHASES = ("init", "data", "forward", "backward", "optimizer", "zero_grad", "eval")


@dataclass(frozen=True)
class Rule:
    """How a block's category was decided; ``reason`` completes "it is one because it is …"."""

    name: str
    reason: str


# In the order of Rule in csrc/compute/categories.h.
RULES: tuple[Rule, ...] = (
    Rule("none", "a block that no rule speaks for"),
    Rule("tag", "tagged: the program said what it is"),
    Rule("saved_for_backward", "born in forward and freed in backward"),
    Rule("output", "born in forward or eval and held by the program beyond that"),
    Rule("retained", "born in forward, after the first step, and held for several steps"),
    Rule("gradient_size", "born in backward, outlives it, and has the size of a parameter"),
    Rule("freed_by_zero_grad", "born in backward and freed by zero_grad"),
    Rule("born_in_optimizer", "born in an optimizer's step and alive in its next one"),
    Rule("loaded_state", "one of one or two whole further sets of the parameters, from before"),
    Rule("has_gradient", "from before training, stays, and has a gradient of its size"),
    Rule("copy", "from before training, stays, and has the size of a trained parameter"),
    Rule("frozen", "from before training, stays, and has no gradient in a model mostly frozen"),
    Rule("between_parameters", "from before training, stays, small or moved between parameters"),
    Rule("born_in_data", "born in data and alive beyond it"),
    Rule("after_parameters", "from before training, stays, and was made after the parameters"),
    Rule("same_phase", "born and freed in one stay in a phase"),
    Rule("before_training", "freed before the first backward"),
    Rule("after_backward", "born in backward, outlives it, and no parameter has its size"),
    Rule("after_optimizer", "born in an optimizer's step and freed before its next one"),
    Rule("kept", "made while training and kept: a library's workspace, a cache"),
    Rule("has_state", "from before training, stays, and has optimizer state of its size"),
    Rule("summarised", "born or freed in steps that share a summary, of which phases are not told"),
    # Not one of csrc/compute/categories.h.
    Rule("yours", "a rule of your own says so"),
)


@dataclass(frozen=True)
class Categories:
    """One row per alloc of the whole trace, in the order in which they happened.

    ``category_id`` uint8, index into `CATEGORY_NAMES`; ``rule_id`` uint8, index into `RULES`.
    """

    category_id: npt.NDArray[np.uint8]
    rule_id: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.category_id)

    @property
    def category(self) -> npt.NDArray[np.str_]:
        """The category of each row by name: ``parameter``, ``gradient``, … ``unknown``."""
        return np.array(CATEGORY_NAMES)[self.category_id]

    def to_dict(self) -> dict[str, Any]:
        """Return how many allocs each category has, and by which rules, as JSON-like values."""
        counts: dict[str, Any] = {}
        for i, name in enumerate(CATEGORY_NAMES):
            rules = np.bincount(self.rule_id[self.category_id == i], minlength=len(RULES))
            by_rule = {rule.name: int(n) for rule, n in zip(RULES, rules, strict=True) if n}
            counts[name] = {"allocs": int(rules.sum()), "rules": by_rule}
        return counts


def find_categories(trace: TraceData) -> Categories:
    """Tell what each allocation is for, in one pass.

    Rows are the allocs of the *whole* trace, also for a slice: what a block is for often shows only
    later. Without phases in the trace only tags speak, and all else is ``unknown``. Rules of the
    user's (`TraceData.category_rules`) come first.
    """
    finder = CategoryFinder(trace)
    for batch in trace.whole.chunks():
        finder.feed(batch)
    found = finder.finish()
    if trace.category_rules:
        is_matched, category = match_rules(trace, trace.category_rules)
        yours = np.uint8(len(RULES) - 1)
        found = Categories(
            np.where(is_matched, category, found.category_id),
            np.where(is_matched, yours, found.rule_id),
        )
    return found


class CategoryFinder:
    """Tells categories as the batches of a *whole* trace go by; see `find_categories`."""

    def __init__(self, trace: TraceData) -> None:
        """Prepare for one pass over ``trace``."""
        self._categorizer = _core.Categorizer([_meaning(path) for path in trace.phase_paths])

    def begin(self, initial: dict[int, dict[str, int]]) -> None:
        """Take nothing: lines don't matter here."""

    def feed(self, batch: Batch, lines: Lines | None = None) -> None:
        """Take the next batch."""
        self._categorizer.feed(batch.raw, batch.phase_path)

    def finish(self) -> Categories:
        """Return the category of every alloc."""
        return Categories(*self._categorizer.finish())


def _meaning(path: tuple[str, ...]) -> tuple[int, bool]:
    """Return the class of a phase path, and whether opening the path opens that class anew."""
    for depth, name in enumerate(reversed(path)):
        if name in _PHASES:
            return _PHASES.index(name) + 1, depth == 0
    return 0, True
