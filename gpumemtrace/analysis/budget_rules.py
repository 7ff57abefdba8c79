"""The rules of a memory budget: what a TOML file says, checked word by word."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpumemtrace.analysis.lifetimes import CATEGORY_NAMES
from gpumemtrace.analysis.lines import LINES
from gpumemtrace.errors import GpuMemTraceError
from gpumemtrace.units import parse_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["GrowthRule", "LimitRule", "Rule", "RulesError", "load_rules", "parse_rules"]


class RulesError(GpuMemTraceError):
    """A budget can't be used: what is wrong, in which rule, and what is possible instead."""


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


@dataclass(frozen=True, kw_only=True)
class GrowthRule:
    """What is in use grows by no more than ``max_bytes_per_step``, from ``from_step`` on."""

    name: str
    max_bytes_per_step: int
    from_step: int | None = None
    device: int | None = None
    rank: int | None = None


Rule = LimitRule | GrowthRule

_LIMIT_KEYS = ("name", "max", "line", "phase", "category", "steps", "device", "rank")
_GROWTH_KEYS = ("name", "max_per_step", "from_step", "device", "rank")


def load_rules(path: str | os.PathLike[str]) -> tuple[Rule, ...]:
    """Read the rules of a TOML file. Raises `OSError`; `RulesError` for what they can't mean."""
    with Path(path).open("rb") as file:
        try:
            tables = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise RulesError(f"{os.fspath(path)}: not a TOML file: {error}") from None
    try:
        return parse_rules(tables)
    except RulesError as error:
        raise RulesError(f"{os.fspath(path)}: {error}") from None


def parse_rules(tables: Mapping[str, Any]) -> tuple[Rule, ...]:
    """Return the rules of the tables ``[[limit]]`` and ``[[growth]]``. Raises `RulesError`."""
    if unknown := [key for key in tables if key not in ("limit", "growth")]:
        raise RulesError(f"{unknown[0]!r} is no kind of rule: write [[limit]] or [[growth]]")
    rules: list[Rule] = []
    for kind, parse in (("limit", _parse_limit), ("growth", _parse_growth)):
        entries = tables.get(kind, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise RulesError(f"{kind!r} must be a list of tables: write [[{kind}]]")
        for number, entry in enumerate(entries, start=1):
            try:
                rules.append(parse(entry))
            except ValueError as error:
                raise RulesError(f"[[{kind}]] {number}: {error}") from None
    if not rules:
        raise RulesError('there is no rule: write [[limit]] and below it max = "24 GiB"')
    return tuple(rules)


def _parse_limit(entry: dict[str, Any]) -> LimitRule:
    _check_keys(entry, _LIMIT_KEYS, needed="max")
    category = _choice(entry, "category", CATEGORY_NAMES)
    if category is not None and ("phase" in entry or "line" in entry):
        raise ValueError("category is told at the highest instant: not with phase or line")
    return LimitRule(
        name=_text(entry, "name") or _describe(entry) or "peak",
        max_bytes=_size(entry, "max"),
        line=_choice(entry, "line", LINES) or "allocated",
        phase=_text(entry, "phase"),
        category=category,
        steps=_steps(entry),
        device=_whole(entry, "device"),
        rank=_whole(entry, "rank"),
    )


def _parse_growth(entry: dict[str, Any]) -> GrowthRule:
    _check_keys(entry, _GROWTH_KEYS, needed="max_per_step")
    return GrowthRule(
        name=_text(entry, "name") or "growth",
        max_bytes_per_step=_size(entry, "max_per_step"),
        from_step=_whole(entry, "from_step"),
        device=_whole(entry, "device"),
        rank=_whole(entry, "rank"),
    )


def _describe(entry: Mapping[str, Any]) -> str:
    parts = [str(entry[key]) for key in ("phase", "category", "line") if key in entry]
    if "steps" in entry:
        parts.append(f"steps {entry['steps']}")
    return ", ".join(parts)


def _check_keys(entry: Mapping[str, Any], known: tuple[str, ...], *, needed: str) -> None:
    for key in entry:
        if key not in known:
            raise ValueError(f"{key!r} is not known: known are {', '.join(known)}")
    if needed not in entry:
        raise ValueError(f'{needed!r} is missing, such as {needed} = "1 GiB"')


def _size(entry: Mapping[str, Any], key: str) -> int:
    value = entry[key]
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        return parse_bytes(value)
    raise ValueError(f'{key} must be a size such as "24 GiB", not {value!r}')


def _text(entry: Mapping[str, Any], key: str) -> str | None:
    value = entry.get(key)
    if value is None or isinstance(value, str):
        return value
    raise ValueError(f"{key} must be a text, not {value!r}")


def _choice(entry: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> str | None:
    value = _text(entry, key)
    if value is not None and value not in choices:
        raise ValueError(f"{key} is {value!r}: it can be {', '.join(choices)}")
    return value


def _whole(entry: Mapping[str, Any], key: str) -> int | None:
    value = entry.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise ValueError(f"{key} must be a whole number from 0 on, not {value!r}")


def _steps(entry: Mapping[str, Any]) -> tuple[int, int] | None:
    text = _text(entry, "steps")
    if text is None:
        return None
    first, colon, end = text.partition(":")
    if not (colon and first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise ValueError(f'steps is {text!r}: write A:B, such as "10:100" (100 not included)')
    return int(first), int(end)
