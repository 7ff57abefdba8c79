"""``gpumemtrace check``: is the trace whole and sound? The exit status says."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from gpumemtrace.cli.options import add_json, add_quiet, add_trace
from gpumemtrace.cli.wording import explain
from gpumemtrace.errors import CorruptTraceError, NotATraceError
from gpumemtrace.units import format_count

if TYPE_CHECKING:
    from gpumemtrace.analysis.check import CheckResult

__all__ = ["add_parser", "run"]

_EPILOG = """\
exit status:
  0  good: whole, at least one allocation, every free has its allocation, steps in order
  3  empty: no allocation was recorded
  4  truncated: it ends early (the disk was full, the process was killed); what is there is sound
     recovered: the process was killed; what it had not written yet was found in shared memory
  5  corrupt: bytes are damaged, events contradict each other, or the file is no trace

examples:
  gpumemtrace check train.gmt
  gpumemtrace check --json train.gmt | jq .diagnostics
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "check",
        help="is the trace whole and sound? (exit status 0, 3, 4 or 5)",
        description="Read the whole trace and say whether it is whole and can be true.",
        epilog=_EPILOG,
    )
    add_trace(parser)
    add_json(parser)
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the verdict; return its exit status."""
    from gpumemtrace.analysis.check import EXIT_STATUS, check_trace
    from gpumemtrace.cli.reading import open_trace

    try:
        result = check_trace(open_trace(args.trace, quiet=args.quiet))
    except (NotATraceError, CorruptTraceError) as error:
        # Nothing in it can be read, which is a verdict too.
        verdict = "corrupt" if args.trace.stat().st_size else "empty"
        if args.json:
            diagnostic = {"kind": "unreadable", "message": str(error), "event": -1, "offset": -1}
            print(json.dumps({"verdict": verdict, "diagnostics": [diagnostic]}, indent=2))
        else:
            print(f"{args.trace}: {verdict}: {str(error).removeprefix(f'{args.trace}: ')}")
        return EXIT_STATUS[verdict]
    if args.json:
        print(json.dumps(result.to_dict(), indent=2))
    else:
        print(f"{args.trace}: {describe(result)}")
        if not args.quiet:
            for line in explain(result):
                print(f"  {line}")
    return result.exit_status


def describe(result: CheckResult) -> str:
    """Return the verdict and what it rests on, in one line."""
    if result.verdict == "empty":
        return "empty: no allocation of CUDA memory was recorded"
    parts = [
        f"{result.verdict}: {format_count(result.allocs, 'alloc')}, "
        f"{format_count(result.frees, 'free')}, "
        f"{format_count(result.live_blocks, 'block')} in use at the end"
    ]
    from gpumemtrace.analysis.flight_wording import describe_not_kept

    if result.flight is not None:
        parts.append(f"flight recording: {describe_not_kept(result.flight)}")
    if result.aged:
        parts.append(
            f"{result.aged.left_out_events:,} events of steps {result.aged.first:,} to "
            f"{result.aged.last:,} aged to summaries"
        )
    if result.dropped_events:
        parts.append(f"{format_count(result.dropped_events, 'event')} lost")
    if result.unseen_allocs:
        frees = format_count(result.unseen_allocs, "free")
        parts.append(f"{frees} of blocks from before the trace or a gap")
    return ", ".join(parts)
