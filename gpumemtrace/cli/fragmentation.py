"""``gpumemtrace fragmentation``: what is cached, why, and what pins it."""

from __future__ import annotations

import argparse
import json

from gpumemtrace.cli.options import (
    add_device,
    add_json,
    add_quiet,
    add_step,
    add_top,
    add_trace,
)
from gpumemtrace.errors import GpuMemTraceError

__all__ = ["add_parser", "run"]

_EPILOG = """\
Without --step or --time it looks at the instant with the most cached memory that is not idle.

causes of cached memory, the first that holds:
  private pool   in a segment of a CUDA graph's pool or a MemPool
  other stream   in a segment made for another stream than the main one
  idle           whole segments, or whole pages of expandable ones: empty_cache would return them
  small pool     beside blocks in use, in a segment for requests of up to 1 MiB
  interleaved    beside blocks in use, in a segment for larger requests

examples:
  gpumemtrace fragmentation train.gmt
  gpumemtrace fragmentation train.gmt --step 120 --top 20
  gpumemtrace fragmentation --json train.gmt | jq .free_bytes
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "fragmentation",
        help="what is cached and why, and what pins it",
        description="Show cached memory by cause, what a request could get of it, what pins it.",
        epilog=_EPILOG,
    )
    add_trace(parser)
    add_device(parser, default="the first")
    when = parser.add_mutually_exclusive_group()
    add_step(when, help="at the end of step N")
    when.add_argument("--time", type=float, metavar="S", help="S seconds after the beginning")
    add_top(parser, what="segments")
    add_json(parser)
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the fragmentation."""
    from gpumemtrace.analysis.fragmentation import find_fragmentation
    from gpumemtrace.cli.fragmentation_screen import print_fragmentation
    from gpumemtrace.cli.reading import open_trace, tell_damage

    trace = open_trace(args.trace, quiet=args.quiet)
    time_ns = None if args.time is None else round(args.time * 1e9)
    try:
        found = find_fragmentation(
            trace, device=args.device, step=args.step, time_ns=time_ns, top=args.top
        )
    except ValueError as error:
        raise GpuMemTraceError(f"{args.trace}: {error}") from error
    tell_damage(trace)
    if args.json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        print_fragmentation(found)
    return 0
