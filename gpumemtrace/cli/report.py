"""``gpumemtrace report``: everything known of a trace on one page."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpumemtrace.cli.options import (
    add_categories,
    add_output,
    add_quiet,
    add_trace,
    print_next,
    refuse_to_overwrite,
    writing,
)
from gpumemtrace.errors import GpuMemTraceError

__all__ = ["add_parser", "run"]

_EPILOG = """\
The page is one file that loads nothing from outside: mail it, attach it to a ticket, keep it.

examples:
  gpumemtrace report train.gmt                 train.html
  gpumemtrace report train.gmt -o report.html
  gpumemtrace report train.gmt --by module
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "report",
        help="everything about a trace on one HTML page",
        description="Write one HTML page with verdicts, zoomable lines, phases, tables.",
        epilog=_EPILOG,
    )
    add_trace(parser)
    parser.add_argument(
        "--by",
        choices=("category", "phase", "module", "site"),
        help="what the page groups the peak by when it opens (default: category)",
    )
    add_categories(parser)
    add_output(parser, help="the page (default: the trace's name, .html)")
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the page and say what to do with it."""
    output: Path = args.output or args.trace.with_suffix(".html")
    if output.suffix.lower() not in (".html", ".htm"):
        raise GpuMemTraceError(f"{output}: the name must end with .html")
    refuse_to_overwrite(output, force=args.force)

    from gpumemtrace.cli.reading import open_trace, require_owners, tell_damage
    from gpumemtrace.report.page import render_page
    from gpumemtrace.report.results import collect
    from gpumemtrace.units import format_bytes

    trace = open_trace(args.trace, quiet=args.quiet, categories=args.categories)
    require_owners(trace, args.by)
    page = render_page(collect(trace), by=args.by)
    with writing(output) as part:
        part.write_text(page, encoding="utf-8")
    tell_damage(trace)
    if not args.quiet:
        print(f"Wrote {output} ({format_bytes(output.stat().st_size)}): open it in a browser")
    print_next("summary", args.trace, quiet=args.quiet)
    return 0
