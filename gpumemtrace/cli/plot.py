"""``gpumemtrace plot``: a trace as a picture."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpumemtrace.cli.options import (
    add_devices,
    add_output,
    add_quiet,
    add_steps,
    add_trace,
    parse_size_inches,
    print_next,
    refuse_to_overwrite,
)
from gpumemtrace.errors import GpuMemTraceError
from gpumemtrace.plot import KINDS

if TYPE_CHECKING:
    from gpumemtrace.trace import Trace

__all__ = ["add_parser", "run"]

_SUFFIXES = (".png", ".svg", ".pdf")

_EPILOG = """\
examples:
  gpumemtrace plot train.gmt                            train.png, the whole run
  gpumemtrace plot train.gmt --steps 10:13 -o zoom.svg  three steps
  gpumemtrace plot train.gmt --device 1 --size 16x6     another device, another size
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "plot",
        help="a trace as a picture: PNG, SVG or PDF",
        description="Draw memory over wall-clock time, with phases, steps and the peak.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_trace(parser)
    add_output(parser, help="the picture: .png, .svg or .pdf (default: the trace's name, .png)")
    parser.add_argument(
        "--kind", choices=KINDS, default="timeline", help="what to draw (default: %(default)s)"
    )
    add_steps(parser)
    add_devices(parser)
    parser.add_argument(
        "--size",
        type=parse_size_inches,
        metavar="WxH",
        help="size in inches, such as 12x6 (150 dots per inch)",
    )
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Draw the picture and say what to type next."""
    output: Path = args.output or args.trace.with_suffix(".png")
    if output.suffix.lower() not in _SUFFIXES:
        raise GpuMemTraceError(f"{output}: the name must end with {', '.join(_SUFFIXES)}")
    refuse_to_overwrite(output, force=args.force)

    from gpumemtrace.cli.reading import open_trace, slice_trace, warn_of_silent_devices
    from gpumemtrace.plot.kinds import load_kind

    trace = open_trace(args.trace, quiet=args.quiet)
    shown = slice_trace(trace, args.steps)
    kind = load_kind(args.kind)
    figure = kind.draw(kind.build(shown, devices=args.device), size_inches=args.size)
    figure.savefig(output, dpi=150)
    warn_of_silent_devices(shown, args.device)
    if not args.quiet:
        print(f"Wrote {output}")
    print_next(*_next_command(args, trace), quiet=args.quiet)
    return 0


def _next_command(args: argparse.Namespace, trace: Trace) -> list[object]:
    if args.steps is None and len(trace.steps) > 5:
        middle = int(trace.steps.number[len(trace.steps) // 2])
        zoomed = args.trace.with_suffix(f".{middle}.png")
        return ["plot", args.trace, "--steps", f"{middle}:{middle + 3}", "-o", zoomed]
    return ["summary", args.trace]
