"""``gpumemtrace peak``: what owned the memory when it was highest?"""

from __future__ import annotations

import argparse
import json

from gpumemtrace.cli.options import (
    add_categories,
    add_device,
    add_json,
    add_quiet,
    add_step,
    add_top,
    add_trace,
    print_next,
)
from gpumemtrace.errors import GpuMemTraceError

__all__ = ["add_parser", "run"]

_EPILOG = """\
--by:
  category  what the blocks are for: parameter, gradient, activation, … (the default)
  phase     the phase in which they were born
  step      the step in which they were born: this one, before it, before the trace
  size      the size of the block
  module    the module that made them (the trace was recorded with --modules)
  site      the line that made them (recorded with --stacks python)

Blocks that were born earlier are counted; the groups add up to the peak, 0 bytes off.

examples:
  gpumemtrace peak train.gmt
  gpumemtrace peak train.gmt --step 100 --by phase
  gpumemtrace peak train.gmt --by module --top 20
  gpumemtrace peak train.gmt --line reserved --by size --top 5
  gpumemtrace peak --json train.gmt | jq '.groups.category'
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "peak",
        help="what owned the memory at the peak, of the run or of a step?",
        description="Show the peak of the run or of one step: when, in which phase, and what was "
        "in use at that instant.",
        epilog=_EPILOG,
    )
    add_trace(parser)
    add_categories(parser)
    add_step(parser, help="the peak of step N (default: of the run)")
    add_device(parser, default="the one with the highest peak")
    parser.add_argument(
        "--by",
        choices=("category", "phase", "step", "size", "module", "site"),
        default="category",
        help="how to group it (default: %(default)s)",
    )
    parser.add_argument(
        "--line",
        choices=("requested", "allocated", "active", "reserved"),
        default="allocated",
        help="whose peak (default: %(default)s)",
    )
    add_top(parser, what="groups")
    add_json(parser)
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print what owned the peak."""
    from gpumemtrace.analysis.peak_live_set import find_peak_live_set
    from gpumemtrace.cli.peak_screen import print_peak
    from gpumemtrace.cli.reading import open_trace, require_owners, tell_damage

    trace = open_trace(args.trace, quiet=args.quiet, categories=args.categories)
    require_owners(trace, args.by)
    try:
        peak = find_peak_live_set(trace, step=args.step, device=args.device, line=args.line)
    except ValueError as error:
        raise GpuMemTraceError(f"{args.trace}: {error}") from None
    tell_damage(trace)
    if args.json:
        print(json.dumps({"path": trace.path} | peak.to_dict(), indent=2))
    else:
        print_peak(peak, by=args.by, top=args.top, with_steps=not args.quiet)
        print_next("report", args.trace, quiet=args.quiet)
    return 0
