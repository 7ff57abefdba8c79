"""``gpumemtrace growth``: does memory grow from step to step? The exit status says."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from gpumemtrace.cli.options import (
    add_categories,
    add_device,
    add_json,
    add_quiet,
    add_trace,
    parse_size_bytes,
)
from gpumemtrace.errors import GpuMemTraceError

if TYPE_CHECKING:
    from gpumemtrace.analysis.growth import Growth

__all__ = ["EXIT_STATUS", "add_parser", "run"]

# For a watchdog: clear of 1 and 2 (errors) and of those of `gpumemtrace check`.
EXIT_STATUS = {"growing": 10, "fragmentation": 11}

_EPILOG = """\
exit status:
   0  stable; or one large step, or still warming up
  10  growing: what is in use grows from step to step
  11  fragmentation: reserved memory grows, what is in use does not

A trace that is still being written is read as far as it goes.

examples:
  gpumemtrace growth train.gmt
  gpumemtrace growth --from-step 100 --tolerate 1KiB train.gmt || notify-send "memory grows"
  gpumemtrace growth --by module train.gmt     what each module keeps
  gpumemtrace growth --json train.gmt | jq .bytes_per_step
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "growth",
        help="does memory grow from step to step? (exit status 0, 10 or 11)",
        description="Judge whether memory grows from step to step, how fast, and what grows.",
        epilog=_EPILOG,
    )
    add_trace(parser)
    add_categories(parser)
    add_device(parser, default="all")
    parser.add_argument(
        "--by",
        choices=("category", "phase", "module", "site"),
        help="list what is in use by this (default: by phase and category)",
    )
    parser.add_argument("--from-step", type=int, metavar="N", help="leave earlier steps out")
    parser.add_argument(
        "--tolerate",
        type=parse_size_bytes,
        default=0,
        metavar="SIZE",
        help="exit with 0 if it grows by no more than this per step, such as 1KiB",
    )
    add_json(parser)
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the verdict; return its exit status."""
    from gpumemtrace.analysis.categories import find_categories
    from gpumemtrace.analysis.growth import Growth, find_growth
    from gpumemtrace.analysis.retained_by import find_retained_by
    from gpumemtrace.cli.growth_screen import print_growth
    from gpumemtrace.cli.reading import open_trace, require_owners, tell_damage

    trace = open_trace(args.trace, quiet=args.quiet, categories=args.categories)
    require_owners(trace, args.by)
    categories = find_categories(trace)
    growth = find_growth(trace, from_step=args.from_step, categories=categories)
    tell_damage(trace)
    if args.device is not None:
        chosen = tuple(d for d in growth.devices if d.device == args.device)
        if not chosen:
            known = ", ".join(str(d.device) for d in growth.devices) or "none"
            raise GpuMemTraceError(
                f"{args.trace}: device {args.device} has no events: those that have: {known}"
            )
        growth = Growth(chosen)
    kept_by = {}
    if args.by is not None:
        for device in growth.devices:
            kept = find_retained_by(trace, device, args.by, categories=categories)
            if kept is not None:
                kept_by[device.device] = kept
    if args.json:
        told = {"path": trace.path} | growth.to_dict()
        for entry in told["devices"]:
            if entry["device"] in kept_by:
                entry["retained_by"] = kept_by[entry["device"]].to_dict()
        print(json.dumps(told, indent=2))
    else:
        print_growth(growth, kept_by, path=trace.path, with_tables=not args.quiet)
    return _status(growth, args.tolerate)


def _status(growth: Growth, tolerated_bytes: int) -> int:
    """The exit status of the worst device that is not tolerated."""
    found = (
        EXIT_STATUS.get(device.verdict, 0)
        for device in growth.devices
        if device.bytes_per_step > tolerated_bytes
    )
    return min((status for status in found if status), default=0)
