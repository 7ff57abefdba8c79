"""``gpumemtrace simulate``: trace a program on a machine without a GPU."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gpumemtrace.cli.own_process import python_arguments
from gpumemtrace.cli.program_options import add_program, add_recording, command_of
from gpumemtrace.errors import GpuMemTraceError

if TYPE_CHECKING:
    from gpumemtrace.capture.gpu_profiles import GpuProfile

__all__ = ["add_parser", "run"]

DEFAULT_GPU = "h100"

_EPILOG = """\
Options go before the program; what comes after it is the program's own.

examples:
  gpumemtrace simulate --gpu a100-40gb train.py --epochs 1
  gpumemtrace simulate --memory 24GiB --compute-capability 8.9 train.py
  gpumemtrace simulate --alloc-conf expandable_segments:True -o train.gmt train.py
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "simulate",
        help="trace a program on a simulated GPU: no GPU is needed",
        description="Run a Python program on a simulated GPU and record every allocation of CUDA "
        "memory it makes. PyTorch's own allocator, autograd and optimizers run; kernels do "
        "nothing, so losses mean nothing. What was approximated is listed in the trace.",
        epilog=_EPILOG,
    )
    card = parser.add_argument_group("the card")
    card.add_argument(
        "--gpu",
        metavar="NAME",
        help=f"h200, h100, a100-40gb, a100-80gb, l40s, l4, rtx4090, t4 (default: {DEFAULT_GPU})",
    )
    card.add_argument("--memory", metavar="SIZE", help="any other card: its memory, like 24GiB")
    card.add_argument(
        "--compute-capability",
        metavar="X.Y",
        help="any other card: like 9.0 (with --memory); 7.0 to 12.9",
    )
    card.add_argument("--sm-count", metavar="N", type=int, help="any other card: multiprocessors")
    card.add_argument("--gpus", metavar="N", type=int, default=1, help="how many (default: 1)")
    card.add_argument(
        "--alloc-conf", metavar="CONF", help="allocator settings, as in PYTORCH_CUDA_ALLOC_CONF"
    )
    add_recording(parser)
    add_program(parser)
    parser.set_defaults(passes_interrupt_on=True)
    return parser


def run(args: argparse.Namespace) -> int:
    """Become ``gpumemtrace run`` on the simulated GPU: status and signals are the program's."""
    from gpumemtrace.capture.simulate import exec_simulated

    exec_simulated(
        python_arguments("run", *command_of(args)),
        _profile_of(args),
        devices=args.gpus,
        alloc_conf=args.alloc_conf,
    )


def _profile_of(args: argparse.Namespace) -> GpuProfile:
    from gpumemtrace.capture.gpu_profiles import find_profile, make_profile

    own = {"--compute-capability": args.compute_capability, "--sm-count": args.sm_count}
    if args.memory is None:
        if given := [name for name, value in own.items() if value is not None]:
            raise GpuMemTraceError(f"{given[0]} describes a card of your own: give --memory too")
        return find_profile(args.gpu or DEFAULT_GPU)
    if args.gpu is not None:
        raise GpuMemTraceError(f"--gpu {args.gpu} and --memory contradict each other: give one")
    if args.compute_capability is None:
        raise GpuMemTraceError(
            "--memory needs --compute-capability too: 8.6 for an RTX 3090 or A10, "
            "8.9 for an RTX 4090 or L4, 9.0 for an H100, 12.0 for an RTX 5090"
        )
    return make_profile(args.memory, args.compute_capability, sm_count=args.sm_count)
