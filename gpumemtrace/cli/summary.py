"""``gpumemtrace summary``: the run on one screen."""

from __future__ import annotations

import argparse
import json

from gpumemtrace.cli.options import add_categories, add_json, add_quiet, add_trace

__all__ = ["add_parser", "run"]

_EPILOG = """\
requested    what the program asked for
allocated    the allocator's blocks for it (sizes rounded)
active       those, and blocks that wait for another stream
reserved     what the allocator took from the driver, its cache included
device used  what the whole device has in use, sampled: context, libraries, other processes too

examples:
  gpumemtrace summary train.gmt
  gpumemtrace summary --json train.gmt | jq '.devices[0].peak_bytes'
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "summary",
        help="peaks, phases, what owns the peak, growth, advice",
        description="Show what went wrong, the peaks of each device, what each phase did, what the "
        "peak is made of, whether memory grows, and what would lower the peak.",
        epilog=_EPILOG,
    )
    add_trace(parser)
    add_categories(parser)
    add_json(parser)
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the summary."""
    from gpumemtrace.analysis.answers import find_answers
    from gpumemtrace.cli.reading import open_trace
    from gpumemtrace.cli.summary_screen import print_summary

    answers = find_answers(open_trace(args.trace, quiet=args.quiet, categories=args.categories))
    if args.json:
        print(json.dumps(answers.to_dict(), indent=2))
        return 0
    print_summary(answers, hints=not args.quiet)
    return 0
