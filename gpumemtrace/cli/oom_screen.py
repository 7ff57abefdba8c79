"""Failed requests as sentences and tables on a terminal, or plain text in a pipe."""

from __future__ import annotations

from rich.console import Console

from gpumemtrace.analysis.gap_results import GAPS, Gaps
from gpumemtrace.analysis.gap_wording import GAP_LABELS, LINE_ABOVE
from gpumemtrace.analysis.oom import FailedRequest, LargeGroup, Oom
from gpumemtrace.analysis.oom_wording import (
    describe_cause,
    describe_figures,
    describe_outside,
    describe_request,
)
from gpumemtrace.cli.console import make_console, make_table
from gpumemtrace.units import bytes_or_unknown, format_bytes

__all__ = ["print_oom"]


def print_oom(oom: Oom) -> None:
    """Print what was found on stdout."""
    console = make_console()
    if not oom.failed and oom.outside is None:
        console.print("no request failed")
    for i, request in enumerate(oom.requests):
        if i:
            console.print()
        _print_request(console, request)
    if oom.failed > len(oom.requests):
        console.print(
            f"\n… showing the first {len(oom.requests) - 1} and the last of {oom.failed:,} failed "
            "requests."
        )
    if oom.failed:
        last = "The program ended with the last one." if oom.died_of_it else "The program went on."
        console.print(f"\n{last}")
    if oom.outside is not None:
        console.print(describe_outside(oom.outside))


def _print_request(console: Console, request: FailedRequest) -> None:
    console.print(describe_request(request), style="bold")
    console.print(f"Cause: {describe_cause(request)}")
    for line in describe_figures(request):
        console.print(line)
    if request.gaps is not None:
        _print_gaps(console, request.gaps)
    _print_groups(console, request.groups)
    _print_helps(console, request)


def _print_gaps(console: Console, gaps: Gaps) -> None:
    table = make_table(console, "\nJust before", ["", "bytes", "sum up to here"])
    table.add_row("requested", format_bytes(gaps.requested), "")
    for name in GAPS:
        size = getattr(gaps, name)
        line = LINE_ABOVE.get(name)
        total = None if line is None else getattr(gaps, line)
        if size is not None or name in ("cached", "outside", "device_free"):
            end = "" if total is None else f"{str(line).replace('_', ' ')} {format_bytes(total)}"
            table.add_row(GAP_LABELS[name], bytes_or_unknown(size), end)
    console.print(table)


def _print_groups(console: Console, groups: tuple[LargeGroup, ...]) -> None:
    if not groups:
        return
    columns = ["largest in use", "born in", "steps", "blocks", "in all"]
    table = make_table(console, "", columns)
    for group in groups:
        first, last = group.first_step, group.last_step
        table.add_row(
            group.category.replace("_", " "),
            group.phase or "no phase",
            str(first) if first == last else f"{first} to {last}",
            f"{group.blocks:,} x {format_bytes(group.size_bytes)}",
            format_bytes(group.total_bytes),
        )
    console.print(table)


def _print_helps(console: Console, request: FailedRequest) -> None:
    if not request.helps:
        return
    table = make_table(
        console, "\nWhat would have helped", ["change", "at most", "enough", "since"]
    )
    table.columns[3].justify = "left"
    for column in table.columns:
        column.no_wrap = False
    for found in request.helps:
        enough = "yes" if found.is_enough else "no"
        table.add_row(found.change, format_bytes(found.size_bytes), enough, found.evidence)
    console.print(table)
