"""``gpumemtrace oom``: why did a request fail, who held the memory, what would have helped?"""

from __future__ import annotations

import argparse
import json

from gpumemtrace.cli.options import add_categories, add_json, add_quiet, add_trace

__all__ = ["add_parser", "run"]

_EPILOG = """\
Exit status 0, whether or not a request failed. What would have helped is computed from the blocks
in use and the cache at that instant: each line is an upper bound.

examples:
  gpumemtrace oom train.gmt
  gpumemtrace oom --json train.gmt | jq '.requests[-1].cause'
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "oom",
        help="why a request failed, and what would have helped",
        description="Explain every request that could not be served: the memory at that instant, "
        "the cause, the largest blocks in use, and what would have helped.",
        epilog=_EPILOG,
    )
    add_trace(parser)
    add_categories(parser)
    add_json(parser)
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the explanation."""
    from gpumemtrace.analysis.oom import find_oom
    from gpumemtrace.cli.oom_screen import print_oom
    from gpumemtrace.cli.reading import open_trace, tell_damage

    trace = open_trace(args.trace, quiet=args.quiet, categories=args.categories)
    oom = find_oom(trace)
    tell_damage(trace)
    if args.json:
        print(json.dumps(oom.to_dict(), indent=2))
    else:
        print_oom(oom)
    return 0
