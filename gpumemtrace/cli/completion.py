"""``gpumemtrace completion``: what makes a shell complete commands, options and files."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from gpumemtrace.errors import GpuMemTraceError

__all__ = ["add_parser", "run"]

_SHELLS = ("bash", "zsh")

_EPILOG = """\
The script is made once, by shtab (pip install 'gpumemtrace[completion]'): a Tab runs no Python.

examples:
  gpumemtrace completion bash > ~/.local/share/bash-completion/completions/gpumemtrace
  gpumemtrace completion zsh > ~/.zfunc/_gpumemtrace      a folder of your fpath
  eval "$(gpumemtrace completion bash)"                   for this shell only
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "completion",
        help="Tab completion for bash and zsh",
        description="Print a script that makes your shell complete this command line.",
        epilog=_EPILOG,
    )
    parser.add_argument("shell", choices=_SHELLS, metavar="SHELL", help=" or ".join(_SHELLS))
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    if find_spec("shtab") is None:
        raise GpuMemTraceError(
            "completion: it is made by shtab; type: pip install 'gpumemtrace[completion]'"
        )
    import shtab

    from gpumemtrace.cli.main import build_parser

    parser = build_parser()
    for subparser in _subparsers(parser):
        for action in subparser._actions:
            if _takes_a_file(action):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, args.shell))
    return 0


def _subparsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    return [
        subparser
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for subparser in action.choices.values()
    ]


def _takes_a_file(action: argparse.Action) -> bool:
    return getattr(action.type, "__name__", "") == "Path" or action.metavar in ("PROGRAM", "FILE")
