"""What is what by the user's own word: rules that name categories, after the fact."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
from gpumemtrace.schema import Category

__all__ = ["CATEGORY_NAMES", "CategoryRule", "load_category_rules", "parse_category_rules"]

CATEGORY_NAMES: tuple[str, ...] = tuple(category.name.lower() for category in Category)

_KEYS = ("name", "phase", "min", "max", "min_age_steps", "max_age_steps", "tag")


@dataclass(frozen=True, kw_only=True)
class CategoryRule:
    """Allocations that all of it is true of are of category ``name``; None: no matter.

    ``phase``: of birth, the innermost. ``min_bytes``, ``max_bytes``: as requested, both included.
    ``min_age_steps``, ``max_age_steps``: steps from birth to death; what is never freed is older
    than any. ``tag``: the name given by `gpumemtrace.tag` or `watch`, with ``*`` and ``?``.
    """

    name: str
    phase: str | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    min_age_steps: int | None = None
    max_age_steps: int | None = None
    tag: str | None = None


def load_category_rules(path: str | os.PathLike[str]) -> tuple[CategoryRule, ...]:
    """Read the rules of a TOML file. Raises `OSError`; `RulesError` for what they can't mean."""
    return load_toml(path, parse_category_rules)


def parse_category_rules(tables: Mapping[str, Any]) -> tuple[CategoryRule, ...]:
    """Return the rules of the tables ``[[category]]``, in order. Raises `RulesError`."""
    rules = parse_tables(tables, {"category": _parse})
    if not rules:
        raise RulesError('there is no rule: write [[category]] and below it name = "input"')
    return tuple(rules)


def _parse(entry: dict[str, Any]) -> CategoryRule:
    check_keys(entry, _KEYS, needed="name", example='"kv_cache"')
    if len(entry) == 1:
        raise ValueError(f"it says of nothing that it is {entry['name']!r}: add phase, min, tag, …")
    return CategoryRule(
        name=choice(entry, "name", CATEGORY_NAMES) or "",
        phase=text(entry, "phase"),
        min_bytes=size_bytes(entry, "min") if "min" in entry else None,
        max_bytes=size_bytes(entry, "max") if "max" in entry else None,
        min_age_steps=whole(entry, "min_age_steps"),
        max_age_steps=whole(entry, "max_age_steps"),
        tag=text(entry, "tag"),
    )
