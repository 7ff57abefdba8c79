"""The rules of a memory budget: what a TOML file says, checked word by word."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gpumemtrace.analysis.budget_findings import Unit
from gpumemtrace.analysis.lines import LINES
from gpumemtrace.category_rules import CATEGORY_NAMES
from gpumemtrace.errors import RulesError
from gpumemtrace.rule_tables import (
    check_keys,
    choice,
    load_toml,
    parse_tables,
    size_bytes,
    text,
    whole,
)

__all__ = [
    "FailureRule",
    "GrowthRule",
    "LimitRule",
    "Rule",
    "RulesError",
    "load_rules",
    "parse_rules",
]


@dataclass(frozen=True, kw_only=True)
class LimitRule:
    """No more than ``max_bytes`` at the peak of ``line``.

    In ``phase``, nested ones included; of ``category``, at the highest instant of the allocated
    line; in ``steps`` (first, end); on ``device``; in the trace of ``rank``. None: no matter which.
    """

    name: str
    max_bytes: int
    line: str = "allocated"
    phase: str | None = None
    category: str | None = None
    steps: tuple[int, int] | None = None
    device: int | None = None
    rank: int | None = None
    unit: ClassVar[Unit] = "bytes"

    @property
    def limit(self) -> int:
        """The most that is allowed, in ``unit``."""
        return self.max_bytes


@dataclass(frozen=True, kw_only=True)
class GrowthRule:
    """What is in use grows by no more than ``max_bytes_per_step``, from ``from_step`` on."""

    name: str
    max_bytes_per_step: int
    from_step: int | None = None
    device: int | None = None
    rank: int | None = None
    unit: ClassVar[Unit] = "bytes per step"

    @property
    def limit(self) -> int:
        """The most that is allowed, in ``unit``."""
        return self.max_bytes_per_step


@dataclass(frozen=True, kw_only=True)
class FailureRule:
    """No more than ``max_requests`` fail for want of memory, and the program survives them.

    For programs that try how much fits; without such a rule none may fail.
    """

    name: str
    max_requests: int
    device: int | None = None
    rank: int | None = None
    unit: ClassVar[Unit] = "requests"

    @property
    def limit(self) -> int:
        """The most that is allowed, in ``unit``."""
        return self.max_requests


Rule = LimitRule | GrowthRule | FailureRule

_LIMIT_KEYS = ("name", "max", "line", "phase", "category", "steps", "device", "rank")
_GROWTH_KEYS = ("name", "max_per_step", "from_step", "device", "rank")
_FAILURE_KEYS = ("name", "max", "device", "rank")


def load_rules(path: str | os.PathLike[str]) -> tuple[Rule, ...]:
    """Read the rules of a TOML file. Raises `OSError`; `RulesError` for what they can't mean."""
    return load_toml(path, parse_rules)


def parse_rules(tables: Mapping[str, Any]) -> tuple[Rule, ...]:
    """Return the rules of ``[[limit]]``, ``[[growth]]`` and ``[[failed_requests]]`` tables.

    Raises `RulesError`.
    """
    kinds = {
        "limit": _parse_limit,
        "growth": _parse_growth,
        "failed_requests": _parse_failed_requests,
    }
    rules = parse_tables(tables, kinds)
    if not rules:
        raise RulesError('there is no rule: write [[limit]] and below it max = "24 GiB"')
    return tuple(rules)


def _parse_limit(entry: dict[str, Any]) -> Rule:
    check_keys(entry, _LIMIT_KEYS, needed="max")
    category = choice(entry, "category", CATEGORY_NAMES)
    if category is not None and ("phase" in entry or "line" in entry):
        raise ValueError("category is told at the highest instant: not with phase or line")
    return LimitRule(
        name=text(entry, "name") or _describe(entry) or "peak",
        max_bytes=size_bytes(entry, "max"),
        line=choice(entry, "line", LINES) or "allocated",
        phase=text(entry, "phase"),
        category=category,
        steps=_steps(entry),
        device=whole(entry, "device"),
        rank=whole(entry, "rank"),
    )


def _parse_growth(entry: dict[str, Any]) -> Rule:
    check_keys(entry, _GROWTH_KEYS, needed="max_per_step")
    return GrowthRule(
        name=text(entry, "name") or "growth",
        max_bytes_per_step=size_bytes(entry, "max_per_step"),
        from_step=whole(entry, "from_step"),
        device=whole(entry, "device"),
        rank=whole(entry, "rank"),
    )


def _parse_failed_requests(entry: dict[str, Any]) -> Rule:
    check_keys(entry, _FAILURE_KEYS, needed="max", example="3")
    return FailureRule(
        name=text(entry, "name") or "failed requests",
        max_requests=whole(entry, "max") or 0,
        device=whole(entry, "device"),
        rank=whole(entry, "rank"),
    )


def _describe(entry: Mapping[str, Any]) -> str:
    parts = [str(entry[key]) for key in ("phase", "category", "line") if key in entry]
    if "steps" in entry:
        parts.append(f"steps {entry['steps']}")
    return ", ".join(parts)


def _steps(entry: Mapping[str, Any]) -> tuple[int, int] | None:
    value = text(entry, "steps")
    if value is None:
        return None
    first, colon, end = value.partition(":")
    if not (colon and first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise ValueError(f'steps is {value!r}: write A:B, such as "10:100" (100 not included)')
    return int(first), int(end)
