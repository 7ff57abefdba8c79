"""``gpumemtrace export``: a trace in other people's formats."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpumemtrace.cli.options import (
    add_devices,
    add_output,
    add_quiet,
    add_steps,
    add_trace,
    refuse_to_overwrite,
    writing,
)
from gpumemtrace.errors import GpuMemTraceError
from gpumemtrace.export import FORMATS

__all__ = ["add_parser", "run"]

_EPILOG = """\
memory_viz   a snapshot for pytorch.org/memory_viz and torch.cuda._memory_viz; best with --steps
perfetto     for ui.perfetto.dev: the lines as counters, phases and steps as slices, marks
parquet      a table for DuckDB, pandas, polars (needs pyarrow: pip install 'gpumemtrace[parquet]')
csv          the same table for anything
gmt          a trace again: with --confidential one to share
JSON         gpumemtrace summary --json prints the summary as JSON

examples:
  gpumemtrace export train.gmt --to memory_viz --steps 10:12
  gpumemtrace export train.gmt --to perfetto -o train.pftrace
  gpumemtrace export train.gmt --to parquet --table allocations
  gpumemtrace export train.gmt --to gmt --confidential -o shared.gmt
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "export",
        help="a trace for other tools, or one to share",
        description="Write a trace in a format that other tools read, or a copy to share.",
        epilog=_EPILOG,
    )
    add_trace(parser)
    parser.add_argument("--to", choices=FORMATS, required=True, help="the format")
    add_output(parser, help="the file to write (default: the trace's name with the usual ending)")
    add_steps(parser)
    parser.add_argument(
        "--at",
        type=float,
        metavar="SECONDS",
        help="end there, seconds after the trace begins (memory_viz shows the segments then)",
    )
    add_devices(parser)
    parser.add_argument(
        "--table",
        choices=("events", "allocations"),
        default="events",
        help="parquet, csv: a row an event, or a row an allocation (default: %(default)s)",
    )
    parser.add_argument(
        "--confidential",
        action="store_true",
        help="leave the paths of folders and the name of the host out of what is written",
    )
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the file and say what is in it."""
    output: Path = args.output or args.trace.with_suffix(FORMATS[args.to])
    if output.exists() and output.samefile(args.trace):
        raise GpuMemTraceError(f"{output} is the trace itself: choose another -o")
    refuse_to_overwrite(output, force=args.force)

    from gpumemtrace.cli.reading import open_trace, slice_trace, tell_damage
    from gpumemtrace.export.formats import ExportOptions, load_format

    trace = open_trace(args.trace, quiet=args.quiet)
    trace = slice_trace(trace.without_paths() if args.confidential else trace, args.steps)
    options = ExportOptions(
        devices=None if args.device is None else frozenset(args.device),
        until_ns=None if args.at is None else round(args.at * 1e9),
        table=args.table,
    )
    with writing(output) as part:
        written = load_format(args.to).write(trace, part, options)
    tell_damage(trace)
    for remark in written.remarks:
        print(f"{output}: {remark}", file=sys.stderr)
    if not args.quiet:
        print(f"Wrote {output}: {written.count:,} {written.unit}")
    return 0
