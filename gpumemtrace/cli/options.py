"""Arguments that several commands share, so that they read the same everywhere."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpumemtrace.errors import GpuMemTraceError

__all__ = [
    "add_categories",
    "add_force",
    "add_json",
    "add_output",
    "add_quiet",
    "add_trace",
    "parse_steps",
    "refuse_to_overwrite",
]


def add_trace(parser: argparse.ArgumentParser) -> None:
    """``TRACE``: the file to read (``args.trace``, a Path)."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="the trace file (.gmt) to read")


def add_categories(parser: argparse.ArgumentParser) -> None:
    """``--categories FILE``: rules of the user's (``args.categories``, a Path or None)."""
    parser.add_argument(
        "--categories",
        type=Path,
        metavar="FILE",
        help="rules of your own that say what allocations are for (TOML)",
    )


def add_output(parser: argparse.ArgumentParser, *, help: str) -> None:
    """``-o/--output`` and ``-f/--force`` (``args.output``, a Path or None; ``args.force``)."""
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=help)
    add_force(parser)


def add_force(parser: argparse.ArgumentParser) -> None:
    """``-f/--force``: overwrite what is there (``args.force``)."""
    parser.add_argument(
        "-f", "--force", action="store_true", help="overwrite the output if it exists"
    )


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """``-q/--quiet``: neither progress nor hints, only results and errors (``args.quiet``)."""
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="no progress, no hints: only results and errors"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``: one JSON object on stdout instead of tables (``args.json``)."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def parse_steps(text: str) -> tuple[int, int]:
    """Return ``A:B`` as two numbers (``type`` of an argument); ``A`` alone is that one step."""
    first, colon, end = text.partition(":")
    try:
        return int(first), int(end) if colon else int(first) + 1
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not A:B, such as 10:13") from None


def refuse_to_overwrite(path: Path, *, force: bool) -> None:
    """Raise `GpuMemTraceError` if ``path`` exists and ``--force`` was not given."""
    if path.exists() and not force:
        raise GpuMemTraceError(f"{path} is there already: choose another -o, or overwrite with -f")
