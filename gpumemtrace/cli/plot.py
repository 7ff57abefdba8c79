"""``gpumemtrace plot``: a trace as a picture."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpumemtrace.cli.options import print_next, refuse_to_overwrite, writing
from gpumemtrace.cli.plot_options import DOTS_PER_INCH, EPILOG, add_options, check_parts
from gpumemtrace.errors import GpuMemTraceError

if TYPE_CHECKING:
    from gpumemtrace.trace import Trace

__all__ = ["add_parser", "run"]

_SUFFIXES = (".png", ".svg", ".pdf")


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "plot",
        help="a trace as a picture: PNG, SVG or PDF",
        description="Draw memory over time, or one of the other figures, for one trace or two.",
        epilog=EPILOG,
    )
    add_options(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Draw the picture and say what to type next."""
    kind: str = args.kind or ("timeline" if args.other is None else "compare")
    check_parts(args, kind)
    suffix = ".png" if kind == "timeline" else f".{kind}.png"
    output: Path = args.output or args.trace.with_suffix(suffix)
    if output.suffix.lower() not in _SUFFIXES:
        raise GpuMemTraceError(f"{output}: the name must end with {', '.join(_SUFFIXES)}")
    refuse_to_overwrite(output, force=args.force)

    from gpumemtrace.cli.plot_input import choose_shown
    from gpumemtrace.cli.reading import tell_damage, warn_of_silent_devices

    shown, others, left_out = choose_shown(args, kind)
    _draw(kind, shown, others, args, output)
    tell_damage(shown, *others.values())
    warn_of_silent_devices(shown, args.device, *others.values())
    if not args.quiet:
        print(f"Wrote {output}{left_out}")
    print_next(*_next_command(args, kind, shown), quiet=args.quiet)
    return 0


def _draw(
    kind: str, trace: Trace, others: dict[str, Any], args: argparse.Namespace, output: Path
) -> None:
    from matplotlib import style

    from gpumemtrace.plot.kinds import load_kind
    from gpumemtrace.plot.theme import find_theme

    try:
        sheets = find_theme(args.style)
    except ValueError as error:
        raise GpuMemTraceError(f"plot --style: {error}") from None
    figure_kind = load_kind(kind)
    result = figure_kind.build(trace, devices=args.device, **others)
    with style.context(sheets), warnings.catch_warnings():
        # An emoji in a name: a box stands for it.
        warnings.filterwarnings("ignore", message="Glyph")
        figure = figure_kind.draw(result, size_inches=args.size)
        with writing(output) as part:
            figure.savefig(part, dpi=DOTS_PER_INCH)


def _next_command(args: argparse.Namespace, kind: str, shown: Trace) -> list[object]:
    if kind == "compare":
        return ["compare", args.trace, args.other] if args.other else ["summary", args.trace]
    if kind == "timeline" and not args.steps and not args.time and len(shown.steps) > 5:
        middle = int(shown.steps.number[len(shown.steps) // 2])
        zoomed = args.trace.with_suffix(f".{middle}.png")
        return ["plot", args.trace, "--steps", f"{middle}:{middle + 3}", "-o", zoomed]
    return ["summary", args.trace]
