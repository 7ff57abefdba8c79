"""``gpumemtrace demo``: a small real training run, traced, summarised and plotted."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path

from gpumemtrace.cli.options import add_output, add_quiet
from gpumemtrace.cli.own_process import python_arguments
from gpumemtrace.errors import InstallError

__all__ = ["add_parser", "run"]

_EPILOG = """\
examples:
  gpumemtrace demo
  gpumemtrace demo --simulate -o demo.gmt
"""

SCRIPT = Path(__file__).parents[1] / "demo" / "train_gpt.py"


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add ``demo`` to the command line."""
    parser = subparsers.add_parser(
        "demo",
        help="start here: a small training run, traced and shown",
        description="Train a small GPT for 20 steps, on the GPU if there is one, else on a "
        "simulated one; then print the summary and draw the timeline.",
        epilog=_EPILOG,
    )
    add_output(parser, help="the trace to write; the pictures go beside it")
    add_quiet(parser)
    parser.add_argument(
        "--simulate", action="store_true", help="use the simulated GPU even if there is a real one"
    )
    return parser


def has_gpu() -> bool:
    """Whether torch sees a CUDA device (asked in a child: this process stays free of CUDA)."""
    question = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)"
    asked = subprocess.run([sys.executable, "-c", question], capture_output=True, check=False)
    return asked.returncode == 0


def run(args: argparse.Namespace) -> int:
    """Trace the demo script, then show it. Returns the exit status."""
    if importlib.util.find_spec("torch") is None:
        raise InstallError(
            "demo: it trains a model and needs torch; type: pip install torch, "
            "then install gpumemtrace again"
        )
    trace = args.output or Path(f"gpumemtrace-demo.0.{os.getpid()}.gmt")
    picture, close_up = trace.with_suffix(".png"), trace.with_suffix(".steps.png")
    is_real = not args.simulate and has_gpu()
    verb = ["run"] if is_real else ["simulate", "--gpu", "h100"]
    where = "the GPU" if is_real else "a simulated H100, which needs no GPU"
    if not args.quiet:
        print(f"Training a small GPT for 20 steps on {where} …\n", flush=True)
    force = ["--force"] if args.force else []
    for arguments in (
        [*verb, "-q", *force, "-o", str(trace), str(SCRIPT)],
        ["summary", "-q", str(trace)],
        ["plot", "-q", *force, str(trace), "-o", str(picture)],
        ["plot", "-q", *force, str(trace), "--steps", "8:12", "-o", str(close_up)],
    ):
        status = gpumemtrace(*arguments)
        if status != 0:
            return status
    if not args.quiet:
        print(f"\nTrace    {trace}\nPicture  {picture}\nClose-up {close_up}\n")
        print(f"What sets the peak:\n  gpumemtrace peak {shlex.quote(str(trace))}")
        print(f"All of it on one page:\n  gpumemtrace report {shlex.quote(str(trace))}")
        print(f"Now your own script:\n  gpumemtrace {' '.join(verb)} train.py")
    return 0


def gpumemtrace(*arguments: str) -> int:
    """Run one command in a process of its own, so that each sees what a user's would."""
    command = [sys.executable, *python_arguments(*arguments)]
    return subprocess.run(command, check=False).returncode
