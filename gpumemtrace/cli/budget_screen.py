"""What each rule of a budget found, as a table."""

from __future__ import annotations

from gpumemtrace.analysis.budget import Budget, Finding
from gpumemtrace.cli.console import make_console, make_table
from gpumemtrace.units import format_bytes, format_count

__all__ = ["print_budget"]

_STYLES = {"ok": "", "over": "bold red", "unknown": "yellow"}


def print_budget(budget: Budget, *, several: bool) -> None:
    """Print a row per finding, then the verdict; ``several``: name the trace too."""
    console = make_console()
    table = make_table(console, "", ["", "rule", "measured", "limit", "where"])
    for name in (1, 4):
        table.columns[name].justify = "left"
    table.columns[4].no_wrap = False
    for finding in budget.findings:
        table.add_row(
            finding.verdict,
            finding.rule,
            "not known" if finding.measured is None else _size(finding, finding.measured),
            _size(finding, finding.limit),
            _place(finding, several=several),
            style=_STYLES[finding.verdict],
        )
    console.print(table)
    console.print(_sum_up(budget))
    for doubt in budget.doubts:
        console.print(f"In doubt: {doubt.path}: {doubt.what}.")


def _sum_up(budget: Budget) -> str:
    rows = len(budget.findings)
    over = sum(finding.verdict == "over" for finding in budget.findings)
    unknown = sum(finding.verdict == "unknown" for finding in budget.findings)
    parts = [f"{over:,} of {rows:,} over the limit"] if over else []
    if unknown:
        parts.append(f"{unknown:,} of {rows:,} can't be told")
    if parts:
        return f"{', '.join(parts)}."
    return "Within budget, as far as the trace tells." if budget.doubts else "Within budget."


def _size(finding: Finding, value: float) -> str:
    if finding.unit == "requests":
        return format_count(int(value), "request")
    return format_bytes(value)


def _place(finding: Finding, *, several: bool) -> str:
    parts = [] if finding.device is None else [f"cuda:{finding.device}"]
    if finding.phase is not None:
        parts.append(finding.phase)
    if finding.step is not None:
        since = "since " if finding.unit == "bytes per step" else ""
        parts.append(f"{since}step {finding.step}")
    if several and finding.path is not None:
        parts.append(finding.path)
    return ": ".join(part for part in (", ".join(parts), finding.note) if part)
