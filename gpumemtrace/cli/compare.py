"""``gpumemtrace compare``: what is different between two runs, or two parts of one."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from gpumemtrace.cli.options import add_json, add_quiet, add_side_steps, add_top

__all__ = ["add_parser", "run"]

_EPILOG = """\
examples:
  gpumemtrace compare before.gmt after.gmt
  gpumemtrace compare run.gmt --steps-a 1:2 --steps-b 2:3       the first step against the second
  gpumemtrace compare before.gmt after.gmt --steps-a 10:50 --steps-b 10:50
  gpumemtrace compare before.gmt after.gmt --by module
  gpumemtrace plot before.gmt after.gmt                         the same as a picture
  gpumemtrace compare --json a.gmt b.gmt | jq '.devices[0].peak_bytes.allocated'
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "compare",
        help="what is different between two runs, or two parts of one",
        description="Compare two traces, or two parts of one, by phase and step: peaks, what "
        "phases keep, step time, and the allocations that one has and the other has not.",
        epilog=_EPILOG,
    )
    parser.add_argument("trace", type=Path, metavar="A", help="the first trace")
    parser.add_argument(
        "other", type=Path, metavar="B", nargs="?", help="the second; without it, two parts of A"
    )
    add_side_steps(parser)
    parser.add_argument(
        "--by",
        choices=("category", "phase", "module", "site"),
        help="compare what the peaks are made of by this, and by module or line (site) also what a "
        "step allocates (default: by category)",
    )
    add_top(parser, what="allocations, or modules or lines,")
    add_json(parser)
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the comparison."""
    from gpumemtrace.analysis.compare import compare_traces
    from gpumemtrace.cli.compare_screen import print_comparison
    from gpumemtrace.cli.reading import open_sides, require_owners, tell_damage

    a, b = open_sides(
        args.trace,
        args.other,
        steps_a=args.steps_a,
        steps_b=args.steps_b,
        command="gpumemtrace compare",
        quiet=args.quiet,
    )
    for side in (a, b):
        require_owners(side, args.by)
    found = compare_traces(a, b, by=args.by)
    tell_damage(a, b)
    if args.json:
        print(json.dumps(found.to_dict(), indent=2))
        return 0
    print_comparison(found, top=args.top)
    return 0
