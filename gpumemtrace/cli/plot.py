"""``gpumemtrace plot``: a trace as a picture."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpumemtrace.cli.options import (
    add_output,
    add_quiet,
    add_trace,
    parse_steps,
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
    parser.add_argument(
        "--steps", type=parse_steps, metavar="A:B", help="only steps A to B (B not included)"
    )
    parser.add_argument(
        "--device",
        type=int,
        action="append",
        metavar="N",
        help="only cuda:N; may be given several times (default: all devices with events)",
    )
    parser.add_argument(
        "--size", type=_size, metavar="WxH", help="size in inches, such as 12x6 (150 dots per inch)"
    )
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Draw the picture and say what to type next."""
    output: Path = args.output or args.trace.with_suffix(".png")
    if output.suffix.lower() not in _SUFFIXES:
        raise GpuMemTraceError(f"{output}: the name must end with {', '.join(_SUFFIXES)}")
    refuse_to_overwrite(output, force=args.force)

    from gpumemtrace.cli.reading import open_trace, slice_trace
    from gpumemtrace.plot.kinds import load_kind

    trace = open_trace(args.trace, quiet=args.quiet)
    shown = slice_trace(trace, args.steps)
    kind = load_kind(args.kind)
    figure = kind.draw(kind.build(shown, devices=args.device), size_inches=args.size)
    figure.savefig(output, dpi=150)
    _warn_of_silent_devices(shown, args.device)
    if not args.quiet:
        print(f"Wrote {output}")
        print(f"Next: {_next_command(args, trace)}")
    return 0


def _warn_of_silent_devices(trace: Trace, wanted: list[int] | None) -> None:
    """Say which devices have no events, and where to look instead."""
    active = trace.active_devices
    others = ", ".join(f"cuda:{device}" for device in active) or "no device"
    verb = "have" if len(active) > 1 else "has"
    if wanted is None and not active:
        print(f"{trace.path}: no events: nothing was allocated on any GPU", file=sys.stderr)
    for device in wanted or ():
        if device not in active:
            print(f"cuda:{device} has no events in this trace; {others} {verb}", file=sys.stderr)


def _next_command(args: argparse.Namespace, trace: Trace) -> str:
    name = shlex.quote(str(args.trace))
    if args.steps is None and len(trace.steps) > 5:
        middle = int(trace.steps.number[len(trace.steps) // 2])
        zoomed = shlex.quote(str(args.trace.with_suffix(f".{middle}.png")))
        return f"gpumemtrace plot {name} --steps {middle}:{middle + 3} -o {zoomed}"
    return f"gpumemtrace summary {name}"


def _size(text: str) -> tuple[float, float]:
    width, _, height = text.lower().partition("x")
    try:
        size = float(width), float(height)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not WxH, such as 12x6") from None
    if not all(2 <= length <= 100 for length in size):
        raise argparse.ArgumentTypeError(f"{text}: width and height must be 2 to 100 inches")
    return size
