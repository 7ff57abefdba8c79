"""Arguments that several commands share, so that they read the same everywhere."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from gpumemtrace.errors import GpuMemTraceError

__all__ = [
    "add_categories",
    "add_device",
    "add_devices",
    "add_force",
    "add_json",
    "add_output",
    "add_quiet",
    "add_side_steps",
    "add_step",
    "add_steps",
    "add_top",
    "add_trace",
    "parse_count",
    "parse_size_bytes",
    "parse_size_inches",
    "parse_steps",
    "parse_time",
    "print_next",
    "refuse_to_overwrite",
    "writing",
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


def add_steps(parser: argparse._ActionsContainer) -> None:
    """``--steps A:B`` (``args.steps``, two numbers or None)."""
    parser.add_argument(
        "--steps", type=parse_steps, metavar="A:B", help="only steps A to B (B not included)"
    )


def add_side_steps(parser: argparse.ArgumentParser) -> None:
    """``--steps-a`` and ``--steps-b`` A:B, for two runs or two parts of one (as ``add_steps``)."""
    for side in ("a", "b"):
        parser.add_argument(
            f"--steps-{side}",
            type=parse_steps,
            metavar="A:B",
            help=f"only these steps of {side.upper()}",
        )


def add_step(parser: argparse._ActionsContainer, *, help: str) -> None:
    """``--step N``: one step (``args.step``, a number or None)."""
    parser.add_argument("--step", type=int, metavar="N", help=help)


def add_device(parser: argparse.ArgumentParser, *, default: str) -> None:
    """``--device N``: one device (``args.device``, a number or None: ``default`` in words)."""
    parser.add_argument("--device", type=int, metavar="N", help=f"only cuda:N (default: {default})")


def add_devices(parser: argparse.ArgumentParser) -> None:
    """``--device N``, several times if need be (``args.device``, a list of numbers or None)."""
    parser.add_argument(
        "--device",
        type=int,
        action="append",
        metavar="N",
        help="only cuda:N; may be given several times (default: all)",
    )


def add_top(parser: argparse.ArgumentParser, *, what: str) -> None:
    """``--top N``: how many of ``what`` to list (``args.top``, at least 1)."""
    parser.add_argument(
        "--top",
        type=parse_count,
        default=10,
        metavar="N",
        help=f"list at most N {what} (default: %(default)s)",
    )


def parse_count(text: str) -> int:
    """Return a number of at least 1 (``type`` of an argument)."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be at least 1, such as 5")
    return int(text)


def parse_size_bytes(text: str) -> int:
    """Return a size such as ``1KiB`` in bytes (``type`` of an argument)."""
    from gpumemtrace.units import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_size_inches(text: str) -> tuple[float, float]:
    """Return ``WxH`` as two numbers of inches (``type`` of an argument)."""
    width, _, height = text.lower().partition("x")
    try:
        size = float(width), float(height)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not WxH, such as 12x6") from None
    if not all(2 <= length <= 100 for length in size):
        raise argparse.ArgumentTypeError(f"{text}: width and height must be 2 to 100 inches")
    return size


def parse_steps(text: str) -> tuple[int, int]:
    """Return ``A:B`` as two numbers (``type`` of an argument); ``A`` alone is that one step."""
    first, colon, end = text.partition(":")
    try:
        return int(first), int(end) if colon else int(first) + 1
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not A:B, such as 10:13") from None


def parse_time(text: str) -> tuple[int, int]:
    """Return ``A:B`` in seconds as two times in nanoseconds (``type`` of an argument)."""
    first, _, end = text.partition(":")
    try:
        return round(float(first) * 1e9), round(float(end) * 1e9)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not A:B in seconds, such as 1.5:2") from None


def refuse_to_overwrite(path: Path, *, force: bool) -> None:
    """Raise `GpuMemTraceError` if ``path`` exists and ``--force`` was not given."""
    if path.exists() and not force:
        raise GpuMemTraceError(f"{path} is there already: choose another -o, or overwrite with -f")


def print_next(*arguments: object, quiet: bool) -> None:
    """Say which command to type next, unless ``quiet``."""
    if not quiet:
        print(f"Next: gpumemtrace {shlex.join(map(str, arguments))}")


def _refuse_planted(output: Path) -> None:
    """Raise for a symbolic link of somebody else's in a folder where anybody may make one."""
    if not output.is_symlink():
        return
    folder, owner = output.parent.stat(), output.lstat().st_uid
    if folder.st_mode & stat.S_IWOTH and owner not in (os.geteuid(), folder.st_uid):
        raise GpuMemTraceError(
            f"{output} is somebody else's link in a folder that all may write to: choose another -o"
        )


@contextlib.contextmanager
def writing(output: Path) -> Iterator[Path]:
    """Give the path to write to: it becomes ``output`` when all is written, and never a part of it.

    So what ``--force`` overwrites is there until then. An error in writing names ``output``.
    """
    _refuse_planted(output)
    target = Path(os.path.realpath(output))
    is_plain = target.is_file() or not target.exists()  # no /dev/stdout, no pipe
    safely = is_plain and os.access(target.parent, os.W_OK)
    # A name that nobody can guess, and lie in wait at.
    part = target.with_name(f".{secrets.token_hex(8)}.part.{target.name}") if safely else target
    try:
        yield part
        if safely:
            part.replace(target)
    except OSError as error:
        if error.filename is not None and Path(error.filename) != part:
            raise
        raise GpuMemTraceError(f"can't write {output}: {error.strerror or error}") from error
    finally:
        if safely:
            part.unlink(missing_ok=True)
