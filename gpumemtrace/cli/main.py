"""The ``gpumemtrace`` command: finds the subcommand, runs it, turns its errors into one line.

A subcommand is a module ``gpumemtrace/cli/<name>.py`` listed in `COMMANDS`, with

``add_parser(subparsers) -> ArgumentParser``
    adds its parser and returns it; imports nothing heavy, as it runs for every command.
``run(args) -> int``
    does the work and returns the exit status; raises `GpuMemTraceError` or `OSError` for what
    the user has to know (message = what, where, what to do).

Exit status: the subcommand's own; 1 for an error; 2 for wrong arguments; 130 for Ctrl-C.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from gpumemtrace.cli import (
    budget,
    check,
    compare,
    completion,
    demo,
    export,
    fragmentation,
    growth,
    import_,
    info,
    oom,
    peak,
    phases,
    plot,
    report,
    run,
    simulate,
    summary,
    times,
    top,
)
from gpumemtrace.cli.grouped_help import CommandParser, GroupedParser
from gpumemtrace.errors import GpuMemTraceError

__all__ = ["COMMANDS", "GROUPS", "Command", "build_parser", "main"]


class Command(Protocol):
    """What each module in `COMMANDS` provides."""

    def add_parser(
        self, subparsers: argparse._SubParsersAction[argparse.ArgumentParser]
    ) -> argparse.ArgumentParser:
        """Add this command's parser and return it."""

    def run(self, args: argparse.Namespace) -> int:
        """Do what was asked and return the exit status."""


# Titles and order are those of `gpumemtrace --help`.
GROUPS: dict[str, tuple[Command, ...]] = {
    "record": (demo, run, simulate),
    "look": (
        top,
        info,
        summary,
        peak,
        growth,
        phases,
        times,
        fragmentation,
        oom,
        plot,
        report,
    ),
    "compare and check": (compare, budget, check),
    "exchange": (export, import_, completion),
}
COMMANDS: tuple[Command, ...] = tuple(command for group in GROUPS.values() for command in group)

_DESCRIPTION = """\
Where PyTorch GPU memory goes: trace a training run, or simulate it without a
GPU; then read the file. `gpumemtrace COMMAND --help` explains one command.
"""

_EXAMPLES = """\
examples:
  gpumemtrace demo                           see it work, with or without a GPU
  gpumemtrace run train.py --epochs 1        trace a script on this machine
  gpumemtrace simulate --gpu h100 train.py   the same trace without a GPU
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (``sys.argv[1:]`` by default) and return its exit status."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.run_command is None:
        parser.print_help(sys.stderr)
        return 2
    if not args.passes_interrupt_on:
        _replace_closed_streams()
    try:
        status: int = args.run_command(args)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        if args.passes_interrupt_on:
            raise
        return 130
    except BrokenPipeError:
        # The reader of our output (head, less) has seen enough: not an error, and Python must not
        # complain about the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if _is_full(error) and sys.stdout is not None:  # or Python complains of the rest at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if args.debug:
            traceback.print_exc()
        else:
            print(f"gpumemtrace: {_one_line(error)}", file=sys.stderr)
        return 1


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line, one subparser per module in `COMMANDS`."""
    parser = GroupedParser(
        prog="gpumemtrace",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run_command=None, debug=False, passes_interrupt_on=False)
    parser.add_argument("--version", action=_VersionAction, help="print the version and exit")
    parser.add_argument("--debug", action="store_true", help="show a traceback for an error")
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser] = parser.add_subparsers(
        metavar="COMMAND", parser_class=CommandParser
    )
    parser.groups = {}
    for title, commands in GROUPS.items():
        parser.groups[title] = [_add_command(subparsers, command) for command in commands]
    return parser


def _add_command(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], command: Command
) -> str:
    """Add the command's parser; return its name."""
    subparser = command.add_parser(subparsers)
    subparser.set_defaults(run_command=command.run)
    # SUPPRESS: without it the subparser's default would undo a --debug before the command.
    subparser.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show a traceback for an error",
    )
    return subparser.prog.rpartition(" ")[2]


def _replace_closed_streams() -> None:
    """Let a closed stdout or stderr (``>&-``) swallow what it is given: the exit status counts."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 (as long as the process lives)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115


def _one_line(error: Exception) -> str:
    if isinstance(error, GpuMemTraceError):
        text = str(error)
    elif isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    elif _is_full(error):
        text = "can't write to stdout: No space left on device"
    else:
        text = f"internal error: {type(error).__name__}: {error} (--debug shows where)"
    return " ".join(text.split())


def _is_full(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None


class _VersionAction(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: object) -> None:
        super().__init__(option_strings, dest, nargs=0, help=str(options.get("help")))

    def __call__(self, *_: object) -> None:
        from importlib.metadata import version

        print(f"gpumemtrace {version('gpumemtrace')}")
        raise SystemExit(0)
