"""``gpumemtrace info``: what the file is, and what ran."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from gpumemtrace.cli.options import add_json, add_quiet, add_trace, print_next

if TYPE_CHECKING:
    from gpumemtrace.analysis.check import CheckResult
    from gpumemtrace.trace import Trace

__all__ = ["add_parser", "run"]

_EPILOG = """\
The exit status is that of `gpumemtrace check`: 0 good, 3 empty, 4 truncated or
recovered, 5 corrupt.

examples:
  gpumemtrace info train.gmt
  gpumemtrace info --json train.gmt | jq .run_record.torch
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "info",
        help="what the file is and what ran",
        description="Say what the file is: format, events, losses, size, and what ran.",
        epilog=_EPILOG,
    )
    add_trace(parser)
    add_json(parser)
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print what is known of the file; return the status that ``check`` would."""
    from gpumemtrace.analysis.check import EXIT_STATUS, check_trace
    from gpumemtrace.cli.info_screen import print_facts
    from gpumemtrace.cli.reading import open_trace
    from gpumemtrace.errors import CorruptTraceError, NotATraceError

    try:
        trace = open_trace(args.trace, quiet=args.quiet)
    except (NotATraceError, CorruptTraceError) as error:
        verdict = "corrupt" if args.trace.stat().st_size else "empty"
        if args.json:
            facts = {"path": str(args.trace), "verdict": verdict, "problems": [str(error)]}
            print(json.dumps(facts, indent=2))
        else:
            print(f"{args.trace}: {str(error).removeprefix(f'{args.trace}: ')}")
        return EXIT_STATUS[verdict]
    result = check_trace(trace)
    facts = _facts(trace, result)
    if args.json:
        print(json.dumps(facts | {"run_record": dict(trace.run_record)}, indent=2))
    else:
        print_facts(facts, trace.run_record)
        if facts["events"]:
            print_next("summary", args.trace, quiet=args.quiet)
    return result.exit_status


def _facts(trace: Trace, result: CheckResult) -> dict[str, Any]:
    from gpumemtrace.analysis.facts import flight_recording

    flight = flight_recording(trace.run_record)
    hours = trace.duration_ns / 3.6e12
    recorded = len(trace) + result.aged.left_out_events
    return {
        "path": trace.path,
        "format_version": trace.format_version,
        "verdict": result.verdict,
        "complete": trace.complete,
        "end": trace.footer.get("reason"),
        "events": len(trace),
        "dropped_events": trace.dropped_events,
        "aged": result.aged.to_dict(),
        "steps": trace.steps.total,
        "duration_s": trace.duration_ns / 1e9,
        "file_bytes": trace.file_bytes,
        "bytes_per_event": trace.file_bytes / recorded if recorded else None,
        "bytes_per_hour": trace.file_bytes / hours if hours else None,
        "devices": list(trace.devices),
        "problems": [problem.message for problem in trace.problems],
        "simulated": trace.run_record.get("simulated"),
        "flight_recorder": None if flight is None else flight.to_dict(),
    }
