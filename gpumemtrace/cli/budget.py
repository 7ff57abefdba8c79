"""``gpumemtrace budget``: does a run keep within its limits? The exit status says."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from gpumemtrace.cli.options import add_json, add_quiet
from gpumemtrace.errors import GpuMemTraceError

__all__ = ["add_parser", "run"]

_STATUS = {"within": 0, "over": 1, "unknown": 2}
_UNUSABLE = 2

_EPILOG = """\
rules.toml:
  [[limit]]                        [[growth]]
  max = "24 GiB"                   max_per_step = "1 KiB"
  phase = "backward"   # optional  from_step = 10   # optional
  line = "reserved"    # optional, like steps = "10:100", category, device, rank

A request that could not be served (out of memory) is over, whatever the limits are.
[[failed_requests]] max = 3 allows some of them, for a program that survives them.

exit status:
  0  within all limits
  1  over one of them, or out of memory
  2  none is over, but one can't be told: it is about nothing in the trace; or a file is unusable
Where a trace has lost something or ends early, what is there is judged, and that is said.

examples:
  gpumemtrace budget train.gmt rules.toml
  gpumemtrace budget rank0.gmt rank1.gmt rules.toml
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "budget",
        help="is a run within its limits? (exit status 0, 1 or 2)",
        description="Check traces against limits per phase, category, rank and step range, and "
        "against growth.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "traces", type=Path, metavar="TRACE", nargs="+", help="the trace files (.gmt) to read"
    )
    parser.add_argument("rules", type=Path, metavar="RULES", help="the limits, a TOML file")
    add_json(parser)
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print what each rule found; return the status that says whether all is within."""
    from gpumemtrace.analysis.budget import check_budget
    from gpumemtrace.analysis.budget_rules import load_rules
    from gpumemtrace.cli.budget_screen import print_budget
    from gpumemtrace.cli.reading import open_trace, tell_damage

    try:
        rules = load_rules(args.rules)
        traces = [open_trace(path, quiet=args.quiet) for path in args.traces]
        budget = check_budget(traces, rules)
    except (GpuMemTraceError, OSError) as error:
        if args.debug:
            raise
        what = error.strerror if isinstance(error, OSError) else error
        where = f"{error.filename}: " if isinstance(error, OSError) else ""
        print(f"gpumemtrace: {where}{what}", file=sys.stderr)
        return _UNUSABLE
    tell_damage(*traces)
    if args.json:
        print(json.dumps(budget.to_dict(), indent=2))
    else:
        print_budget(budget, several=len(args.traces) > 1)
    return _STATUS[budget.verdict]
