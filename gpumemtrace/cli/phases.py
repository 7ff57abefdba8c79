"""``gpumemtrace phases``: what each phase of a step changes, on the device and on the host."""

from __future__ import annotations

import argparse
import json

from gpumemtrace.cli.options import add_json, add_quiet, add_steps, add_trace
from gpumemtrace.errors import GpuMemTraceError
from gpumemtrace.units import format_count

__all__ = ["add_parser", "run"]

_EPILOG = """\
allocated, reserved, host    change from the beginning to the end of the phase, per step that ended
device used                  the highest sample of the whole device taken in the phase

Phases are the automatic ones and your own (gpumemtrace.phase, gpumemtrace.wrap).

examples:
  gpumemtrace phases train.gmt --steps 100:1000
  gpumemtrace phases train.gmt --steps 100:110 --each-step
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "phases",
        help="what each phase changes per step, on the host too",
        description="Show what each phase changes, as a mean over the steps or step by step.",
        epilog=_EPILOG,
    )
    add_trace(parser)
    add_steps(parser)
    parser.add_argument("--each-step", action="store_true", help="a row per step and phase")
    add_json(parser)
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    from gpumemtrace.analysis.phase_changes import find_phase_changes
    from gpumemtrace.cli.phases_screen import print_changes
    from gpumemtrace.cli.reading import open_trace, tell_damage

    trace = open_trace(args.trace, quiet=args.quiet)
    changes = find_phase_changes(trace, steps=args.steps)
    tell_damage(trace)
    if not len(changes.number):
        has = format_count(trace.steps.total, "step")
        raise GpuMemTraceError(f"{args.trace}: no step in these: it has {has}")
    if args.json:
        print(json.dumps({"path": trace.path} | changes.complete.to_dict(), indent=2))
    else:
        print_changes(changes if args.each_step else changes.complete, each_step=args.each_step)
    return 0
