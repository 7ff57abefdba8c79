"""``gpumemtrace import``: a PyTorch memory snapshot becomes a trace."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpumemtrace.cli.options import add_output, add_quiet, print_next, refuse_to_overwrite
from gpumemtrace.units import format_count

__all__ = ["add_parser", "run"]

_EPILOG = """\
A snapshot is what torch.cuda.memory._dump_snapshot writes (torch 2.0 and newer). It is a pickle,
but nothing in it is run: it is read by a reader that knows plain data only, so that a snapshot of
a stranger is safe to import. What a snapshot does not have (the phases forward and backward, which
thread did what, what the whole device had in use) the trace does not have either.

examples:
  gpumemtrace import snapshot.pickle                 snapshot.gmt, for every other command
  gpumemtrace import snapshot.pickle -o before.gmt
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "import",
        help="a PyTorch memory snapshot (.pickle) as a trace",
        description="Turn a PyTorch memory snapshot into a trace, so that every view works on it.",
        epilog=_EPILOG,
    )
    parser.add_argument("snapshot", type=Path, metavar="SNAPSHOT", help="the snapshot's pickle")
    add_output(parser, help="the trace to write (default: the snapshot's name, .gmt)")
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the trace and say what to type next."""
    output: Path = args.output or args.snapshot.with_suffix(".gmt")
    refuse_to_overwrite(output, force=args.force)

    from gpumemtrace.cli.reading import show_progress
    from gpumemtrace.imports.convert import import_snapshot

    is_shown = not args.quiet and sys.stderr.isatty()
    with show_progress(f"Importing {args.snapshot}", is_shown=is_shown) as on_progress:
        imported = import_snapshot(args.snapshot, output, force=args.force, on_progress=on_progress)
    if imported.contradictions:
        print(
            f"{args.snapshot}: "
            f"{format_count(imported.contradictions, 'entry contradicts', 'entries contradict')} "
            "others: only what can be so was taken",
            file=sys.stderr,
        )
    if not imported.has_times:
        print(f"{args.snapshot}: has no times: they are made up, 1 us an entry", file=sys.stderr)
    if not args.quiet:
        print(f"Wrote {output}: {format_count(imported.entries, 'entry', 'entries')}", end="")
        before = format_count(imported.before, "block")
        print(f", and {before} from before them" if imported.before else "")
    print_next("summary", output, quiet=args.quiet)
    return 0
