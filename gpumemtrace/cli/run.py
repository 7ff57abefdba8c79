"""``gpumemtrace run``: trace a program on this machine's GPU."""

from __future__ import annotations

import argparse

from gpumemtrace.cli.program_options import add_program, add_recording, program_of, recording_of

__all__ = ["add_parser", "run"]

_EPILOG = """\
Options go before the program; what comes after it is the program's own.

examples:
  gpumemtrace run train.py --epochs 1
  gpumemtrace run -o train.gmt train.py -o its-own-option
  gpumemtrace run -m torch.distributed.run --nproc-per-node 2 train.py
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "run",
        help="trace a program on this machine's GPU",
        description="Run a Python program and record every allocation of CUDA memory it makes. The "
        "program needs no change; its output and exit status stay its own. Python processes that "
        "it starts (torchrun, multiprocessing) are recorded too, each in a file of its own.",
        epilog=_EPILOG,
    )
    add_recording(parser)
    add_program(parser)
    # Ctrl-C must end this process as it would have ended the program's own.
    parser.set_defaults(passes_interrupt_on=True)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the program; ends the process unless the program ended well."""
    from gpumemtrace.capture.run import run_traced

    return run_traced(program_of(args), recording_of(args))
