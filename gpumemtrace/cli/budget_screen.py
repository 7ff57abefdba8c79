"""What each rule of a budget found, as a table."""

from __future__ import annotations

from gpumemtrace.analysis.budget import Budget, Finding
from gpumemtrace.cli.console import make_console, make_table
from gpumemtrace.units import format_bytes

__all__ = ["print_budget"]


def print_budget(budget: Budget, *, several: bool) -> None:
    """Print a row per finding; ``several``: name the trace too."""
    console = make_console()
    table = make_table(console, "", ["", "rule", "measured", "limit", "where"])
    for name in (1, 4):
        table.columns[name].justify = "left"
    for finding in budget.findings:
        style = "bold red" if finding.is_over else ""
        table.add_row(
            "over" if finding.is_over else "ok",
            finding.rule,
            format_bytes(finding.measured),
            format_bytes(finding.limit),
            _place(finding, several=several),
            style=style,
        )
    console.print(table)
    over = sum(finding.is_over for finding in budget.findings)
    console.print(f"{over} of {len(budget.findings)} over the limit" if over else "Within budget.")


def _place(finding: Finding, *, several: bool) -> str:
    parts = [f"cuda:{finding.device}"]
    if finding.phase is not None:
        parts.append(finding.phase)
    if finding.step is not None:
        parts.append(f"step {finding.step}")
    if several:
        parts.append(str(finding.path))
    return ", ".join(parts)
