"""The arguments of commands that run a program: what to run, and how to record it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gpumemtrace.cli.options import add_force, add_quiet, parse_size_bytes, parse_steps
from gpumemtrace.errors import GpuMemTraceError
from gpumemtrace.units import parse_bytes

if TYPE_CHECKING:
    from gpumemtrace.capture.options import RecordingOptions
    from gpumemtrace.capture.program import Program

__all__ = ["add_program", "add_recording", "command_of", "program_of", "recording_of"]


def add_program(parser: argparse.ArgumentParser) -> None:
    """``SCRIPT …``, ``-m MODULE …`` or ``-c CODE …``: for `program_of`."""
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("-m", dest="is_module", action="store_true", help="PROGRAM is a module")
    kind.add_argument("-c", dest="is_code", action="store_true", help="PROGRAM is Python code")
    parser.add_argument("program", metavar="PROGRAM", help="the script to run")
    parser.add_argument(
        "arguments", metavar="ARG", nargs=argparse.REMAINDER, help="arguments of the program"
    )


def program_of(args: argparse.Namespace) -> Program:
    """Return what `add_program` was told."""
    from gpumemtrace.capture.program import Program

    kind = "module" if args.is_module else "code" if args.is_code else "script"
    return Program(**{kind: args.program}, arguments=args.arguments)


def add_recording(parser: argparse.ArgumentParser) -> None:
    """Options of a recording: for `recording_of`."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="file, folder, or pattern with {script} {rank} {local_rank} {host} {pid} (default: "
        "gpumemtrace-{script}.{rank}.{pid}.gmt)",
    )
    add_force(parser)
    add_quiet(parser)
    parser.add_argument(
        "--phases",
        choices=("auto", "manual", "none"),
        default="auto",
        help="auto: see phases and steps of the training loop; manual: only those that the program "
        "marks (default: auto)",
    )
    parser.add_argument(
        "--modules",
        action="store_true",
        help="note with each event which module made it: `gpumemtrace peak --by module`",
    )
    parser.add_argument(
        "--stacks",
        choices=("python",),
        help="note with each allocation which line of Python made it: `gpumemtrace peak --by site`",
    )
    parser.add_argument(
        "--stacks-min-bytes",
        metavar="SIZE",
        type=_size,
        default=0,
        help="only for allocations of so many bytes, like 1MiB (default: all)",
    )
    parser.add_argument(
        "--stacks-steps",
        metavar="A:B",
        type=parse_steps,
        help="only in steps A to B, B not included (default: in all)",
    )
    parser.add_argument(
        "--confidential",
        action="store_true",
        help="leave the paths of folders and the name of the host out of the trace",
    )
    parser.add_argument(
        "--time-resolution",
        metavar="NS",
        type=int,
        default=100,
        help="store times in multiples of this many ns; finer costs more bytes (default: 100)",
    )
    parser.add_argument(
        "--ring-bytes",
        metavar="N",
        type=int,
        default=8 << 20,
        help="memory between the program and the writer, 64 bytes an event (default: %(default)s)",
    )
    parser.add_argument(
        "--on-full",
        choices=("drop", "block"),
        default="drop",
        help="when events come faster than they can be written. drop: lose the newest, and say so; "
        "block: let the program wait (default: drop)",
    )
    parser.add_argument(
        "--block-timeout",
        metavar="MS",
        type=int,
        default=20,
        help="with --on-full block: drop after waiting this long (default: 20)",
    )
    parser.add_argument(
        "--flight-recorder",
        metavar="TIME",
        help="keep only the last TIME (60s, 5min) in memory, and write it at the end, when memory "
        "runs out, on SIGTERM and SIGUSR2, and by gpumemtrace.dump()",
    )
    parser.add_argument(
        "--flight-memory",
        metavar="SIZE",
        type=parse_size_bytes,
        default=64 << 20,
        help="with --flight-recorder: the most memory that it may take (default: 64MiB)",
    )
    parser.add_argument(
        "--device-interval",
        metavar="MS",
        type=int,
        default=50,
        help="look at the memory of the whole GPU this often, 0 = never (default: 50)",
    )
    parser.add_argument(
        "--max-disk",
        metavar="SIZE",
        help="room that a trace may take, such as 2GiB: older steps are told in summary then "
        "(default: no limit)",
    )


def recording_of(args: argparse.Namespace) -> RecordingOptions:
    """Return what `add_recording` was told; `GpuMemTraceError` for a value out of range."""
    from gpumemtrace.capture.options import RecordingOptions

    try:
        return RecordingOptions(
            output=args.output,
            phases=None if args.phases == "none" else args.phases,
            force=args.force,
            quiet=args.quiet,
            modules=args.modules,
            stacks=args.stacks,
            stacks_min_bytes=args.stacks_min_bytes,
            stacks_steps=None if args.stacks_steps is None else range(*args.stacks_steps),
            confidential=args.confidential,
            time_resolution_ns=args.time_resolution,
            ring_bytes=args.ring_bytes,
            on_full=args.on_full,
            block_timeout_ms=args.block_timeout,
            flight_recorder=args.flight_recorder,
            flight_recorder_bytes=args.flight_memory,
            device_sample_interval_ms=args.device_interval,
            max_disk=args.max_disk,
        )
    except ValueError as error:
        raise GpuMemTraceError(str(error)) from None


def command_of(args: argparse.Namespace) -> list[str]:
    """Return the arguments again, checked, as another process's ``gpumemtrace run`` takes them."""
    options = recording_of(args)
    command = ["--phases", args.phases]
    command += ["--time-resolution", str(options.time_resolution_ns)]
    command += ["--ring-bytes", str(options.ring_bytes)]
    command += ["--on-full", options.on_full]
    command += ["--block-timeout", str(options.block_timeout_ms)]
    if options.flight_recorder is not None:
        command += ["--flight-recorder", options.flight_recorder]
        command += ["--flight-memory", str(options.flight_recorder_bytes)]
    command += ["--device-interval", str(options.device_sample_interval_ms)]
    if options.max_disk is not None:
        command += ["--max-disk", str(options.max_disk)]
    if options.output is not None:
        command += ["--output", str(options.output)]
    command += ["--force"] * options.force + ["--quiet"] * options.quiet
    command += ["--modules"] * options.modules + ["--confidential"] * options.confidential
    if options.stacks is not None:
        command += ["--stacks", options.stacks, "--stacks-min-bytes", str(options.stacks_min_bytes)]
    if options.stacks_steps is not None:
        command += ["--stacks-steps", f"{options.stacks_steps.start}:{options.stacks_steps.stop}"]
    command += ["-m"] * args.is_module + ["-c"] * args.is_code
    return [*command, args.program, *args.arguments]


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
