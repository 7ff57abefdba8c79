"""``gpumemtrace top``: watch a run while it goes on, from its trace."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from gpumemtrace.cli.options import add_json, add_quiet, add_trace

if TYPE_CHECKING:
    from gpumemtrace.analysis.live import Follower, LiveStatus

__all__ = ["add_parser", "run"]

_EPILOG = """\
The trace is read, never the process: watching costs the run nothing. Ends when the recording ends
or its process is gone, or with Ctrl-C.

examples:
  gpumemtrace top gpumemtrace-train.0.4711.gmt
  gpumemtrace top --interval 10 train.gmt               every ten seconds
  gpumemtrace top --once --json train.gmt | jq .step    one look, for scripts
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "top",
        help="watch a run while it goes on: memory, phase, step",
        description="Follow the trace of a run that goes on: the lines of each device now and at "
        "their highest, phase and step, events per second, losses.",
        epilog=_EPILOG,
    )
    add_trace(parser)
    parser.add_argument(
        "--interval", type=_seconds, default=1.0, metavar="S", help="seconds between looks (1)"
    )
    parser.add_argument("--once", action="store_true", help="look once and exit")
    add_json(parser)
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Show where the run is until it ends."""
    from gpumemtrace.analysis.live import Follower

    follower = Follower(args.trace)
    if args.json or args.once or not sys.stdout.isatty():
        _print_on(follower, args)
    else:
        _refresh(follower, args.interval)
    return 0


def _print_on(follower: Follower, args: argparse.Namespace) -> None:
    """Print each look below the one before: for pipes, scripts and logs."""
    from gpumemtrace.cli.top_screen import status_line

    while True:
        status = follower.look()
        print(json.dumps(status.to_dict()) if args.json else status_line(status), flush=True)
        if args.once or status.is_over:
            return
        time.sleep(args.interval)


def _refresh(follower: Follower, interval_s: float) -> None:
    from rich.live import Live

    from gpumemtrace.cli.console import make_console
    from gpumemtrace.cli.top_screen import status_screen

    console = make_console()
    with Live(console=console, auto_refresh=False) as live:
        while True:
            status: LiveStatus = follower.look()
            live.update(status_screen(console, status), refresh=True)
            if status.is_over:
                return
            time.sleep(interval_s)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.05 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: give seconds, from 0.05 to 3600")
    return value
