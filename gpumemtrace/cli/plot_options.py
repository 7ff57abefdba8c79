"""The options of ``gpumemtrace plot``."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpumemtrace.cli.options import (
    add_devices,
    add_output,
    add_quiet,
    add_side_steps,
    add_steps,
    add_trace,
    parse_size_inches,
    parse_time,
)
from gpumemtrace.errors import GpuMemTraceError
from gpumemtrace.plot import KINDS

__all__ = ["DOTS_PER_INCH", "EPILOG", "add_options", "check_parts"]

DOTS_PER_INCH = 150

EPILOG = """\
examples:
  gpumemtrace plot train.gmt                            train.png, the whole run over time
  gpumemtrace plot train.gmt --steps 10:13 -o zoom.svg  three steps
  gpumemtrace plot train.gmt --kind peak                train.peak.png, what owned the peak
  gpumemtrace plot train.gmt --kind categories --time 1.5:2 --style dark
  gpumemtrace plot before.gmt after.gmt                 before.compare.png, two runs
  gpumemtrace plot train.gmt --device 1 --size 16x6     another device, another size

Where the phase init takes most of a run, timeline and categories leave it out, as long as no peak
is in it; --time 0:1000 shows it.
"""

_KINDS_HELP = """\
what to draw (default: timeline, or compare for two traces):
timeline: memory over time; phases: the peak of each phase in each step;
categories: what memory was for over time; peak: what owned the peak;
modules: whose the peak is, by module and call site (recorded with --modules,
--stacks python);
growth: what is kept from step to step; fragmentation: a map of addresses;
sizes and lifetimes of allocations; compare: two runs, or two parts of one"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all of them to ``parser``."""
    add_trace(parser)
    parser.add_argument(
        "other", type=Path, nargs="?", metavar="OTHER", help="a second trace, to compare with TRACE"
    )
    add_output(
        parser,
        help="the picture: .png, .svg or .pdf (default: the trace's name, the kind, .png)",
    )
    parser.add_argument("--kind", choices=KINDS, metavar="KIND", help=_KINDS_HELP)
    part = parser.add_mutually_exclusive_group()
    add_steps(part)
    part.add_argument(
        "--time",
        type=parse_time,
        metavar="A:B",
        help="only from second A to second B (as on the axis)",
    )
    add_side_steps(parser)
    add_devices(parser)
    parser.add_argument(
        "--size",
        type=parse_size_inches,
        metavar="WxH",
        help=f"size in inches, such as 12x6 ({DOTS_PER_INCH} dots per inch)",
    )
    parser.add_argument(
        "--style",
        default="light",
        metavar="NAME",
        help="light, dark, or a style sheet of matplotlib's: a name or a file",
    )
    add_quiet(parser)


def check_parts(args: argparse.Namespace, kind: str) -> None:
    """Raise `GpuMemTraceError` for traces or parts of them that figure ``kind`` does not take."""
    is_pair = kind == "compare"
    if not is_pair and (args.other or args.steps_a or args.steps_b):
        raise GpuMemTraceError(f"plot --kind {kind} shows one trace: two are for --kind compare")
    if is_pair and (args.steps or args.time):
        raise GpuMemTraceError("plot --kind compare takes --steps-a and --steps-b")
