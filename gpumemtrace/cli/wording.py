"""Findings and run records in words, for several commands."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpumemtrace.analysis.check import CheckResult

__all__ = ["GROUP_TITLES", "describe_run", "explain"]

GROUP_TITLES = {
    "category": "what for",
    "phase": "born in phase",
    "step": "born in step",
    "size": "size of block",
    "module": "module",
    "site": "line",
}
"""What stands above a column of groups."""

_MOST_LINES = 20


def describe_run(record: Mapping[str, Any]) -> list[str]:
    """Return what ran, a phrase each: command, versions, devices, rank, settings."""
    phrases = []
    if record.get("argv"):
        phrases.append(shlex.join(map(str, record["argv"])))
    elif record.get("script"):
        phrases.append(str(record["script"]))
    if record.get("torch"):
        phrases.append(f"torch {record['torch']}")
    names = [d.get("name") for d in record.get("devices") or () if isinstance(d, dict)]
    for name in dict.fromkeys(filter(None, names)):
        count = names.count(name)
        phrases.append(name if count == 1 else f"{count} x {name}")
    if (record.get("world_size") or 1) > 1:
        phrases.append(f"rank {record.get('rank')} of {record['world_size']}")
    allocator = record.get("allocator")
    if isinstance(allocator, dict) and allocator.get("settings"):
        phrases.append(f"allocator {allocator['settings']}")
    imported = record.get("imported")
    if isinstance(imported, dict):
        phrases.append(f"from {imported.get('from')}, its times {imported.get('times')}")
    if record.get("host"):
        phrases.append(f"on {record['host']}")
    return phrases


def explain(result: CheckResult, *, without: Collection[str] = ()) -> list[str]:
    """Return what is wrong, a line each; a long list is cut and says so.

    ``without``: kinds of diagnostics that the caller says in words of its own.
    """
    lines = [
        f"at byte {d.offset:,}: {d.message}" if d.offset >= 0 else d.message
        for d in result.diagnostics
        if d.kind not in without
    ]
    found = len(lines)
    for kind, count in result.counts.items():
        found += count - sum(diagnostic.kind == kind for diagnostic in result.diagnostics)
    if found > _MOST_LINES:
        return [*lines[:_MOST_LINES], f"… showing {_MOST_LINES} of {found:,}; --json has more"]
    return lines
