"""``gpumemtrace info``: what the file is, and what ran."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from gpumemtrace.cli.options import add_json, add_quiet, add_trace
from gpumemtrace.cli.wording import describe_run

if TYPE_CHECKING:
    from gpumemtrace.analysis.check import CheckResult
    from gpumemtrace.trace import Trace

__all__ = ["add_parser", "run"]

_EPILOG = """\
The exit status is that of `gpumemtrace check`: 0 good, 3 empty, 4 truncated, 5 corrupt.

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
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_trace(parser)
    add_json(parser)
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print what is known of the file; return the status that ``check`` would."""
    from gpumemtrace.analysis.check import EXIT_STATUS, check_trace
    from gpumemtrace.cli.reading import open_trace
    from gpumemtrace.errors import CorruptTraceError, NotATraceError

    try:
        trace = open_trace(args.trace, quiet=args.quiet)
    except (NotATraceError, CorruptTraceError) as error:
        print(f"{args.trace}: {str(error).removeprefix(f'{args.trace}: ')}")
        return EXIT_STATUS["corrupt" if args.trace.stat().st_size else "empty"]
    result = check_trace(trace)
    facts = _facts(trace, result)
    if args.json:
        print(json.dumps(facts | {"run_record": dict(trace.run_record)}, indent=2))
    else:
        for name, text in _lines(trace, facts):
            print(f"{name:<10}{text}")
    return result.exit_status


def _facts(trace: Trace, result: CheckResult) -> dict[str, Any]:
    hours = trace.duration_ns / 3.6e12
    return {
        "path": trace.path,
        "format_version": trace.format_version,
        "verdict": result.verdict,
        "complete": trace.complete,
        "end": trace.footer.get("reason"),
        "events": len(trace),
        "dropped_events": trace.dropped_events,
        "steps": len(trace.steps),
        "duration_s": trace.duration_ns / 1e9,
        "file_bytes": trace.file_bytes,
        "bytes_per_event": trace.file_bytes / len(trace) if len(trace) else None,
        "bytes_per_hour": trace.file_bytes / hours if hours else None,
        "devices": list(trace.devices),
        "problems": [problem.message for problem in trace.problems],
        "simulated": trace.run_record.get("simulated"),
    }


def _lines(trace: Trace, facts: dict[str, Any]) -> list[tuple[str, str]]:
    from gpumemtrace.units import format_bytes, format_duration

    end = f"closed ({facts['end'] or 'by its writer'})"
    lines = [
        ("file", f"{facts['path']}, format {facts['format_version']}, {facts['verdict']}"),
        ("end", end if facts["complete"] else "ended without clean close"),
        (
            "events",
            f"{facts['events']:,} in {facts['steps']:,} steps and "
            f"{format_duration(facts['duration_s'])}, on "
            + (", ".join(f"cuda:{device}" for device in facts["devices"]) or "no device"),
        ),
        (
            "lost",
            f"{facts['dropped_events']:,} events; when the ring is full the newest are dropped, "
            "counted, and marked as a gap",
        ),
    ]
    size = format_bytes(facts["file_bytes"])
    if facts["bytes_per_event"] is not None:
        size += f", {facts['bytes_per_event']:.2f} bytes/event"
    if facts["bytes_per_hour"] is not None:
        size += f", {format_bytes(facts['bytes_per_hour'])}/hour"
    lines.append(("size", size))
    if facts["events"] == 0:
        lines.append(("", "this process made no CUDA event"))
    if run := describe_run(trace.run_record):
        lines.append(("run", ", ".join(run)))
    if simulated := facts["simulated"]:
        gpu = simulated.get("gpu") if isinstance(simulated, dict) else simulated
        lines.append(("simulated", f"{gpu}: there was no GPU"))
    lines += [("problem", problem) for problem in facts["problems"]]
    return lines
