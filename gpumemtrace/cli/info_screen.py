"""What a file is and what ran, a line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpumemtrace.analysis.aged import describe_ranges
from gpumemtrace.analysis.facts import flight_recording
from gpumemtrace.analysis.flight_wording import describe_recording
from gpumemtrace.cli.training_wording import describe_training
from gpumemtrace.cli.wording import describe_run
from gpumemtrace.units import format_bytes, format_count, format_duration

__all__ = ["print_facts"]


def print_facts(facts: Mapping[str, Any], record: Mapping[str, Any]) -> None:
    """Print them on stdout: ``facts`` of the file, and its run record."""
    for name, text in _lines(facts, record):
        print(f"{name:<10}{text}")


def _lines(facts: Mapping[str, Any], record: Mapping[str, Any]) -> list[tuple[str, str]]:
    end = f"closed ({facts['end'] or 'by its writer'})"
    lines = [
        ("file", f"{facts['path']}, format {facts['format_version']}, {facts['verdict']}"),
        ("end", end if facts["complete"] else _sudden_end(facts)),
        (
            "events",
            f"{facts['events']:,} in {format_count(facts['steps'], 'step')} and "
            f"{format_duration(facts['duration_s'])}, on "
            + (", ".join(f"cuda:{device}" for device in facts["devices"]) or "no device"),
        ),
        (
            "lost",
            f"{format_count(facts['dropped_events'], 'event')}; when the ring is full the newest "
            "are dropped, counted, and marked as a gap",
        ),
    ]
    if (flight := flight_recording(record)) is not None:
        lines.append(("kept", describe_recording(flight)))
    if (aged := facts["aged"])["steps"]:
        lines.append(
            (
                "aged",
                f"{aged['left_out_events']:,} events of {format_count(aged['steps'], 'step')} from "
                f"{aged['first_step']:,} to {aged['last_step']:,}: summaries are left of these",
            )
        )
        detail = describe_ranges([tuple(bounds) for bounds in aged["detailed_steps"]])
        lines.append(("detail", f"of steps {detail}"))
    size = format_bytes(facts["file_bytes"])
    if facts["bytes_per_event"] is not None:
        size += f", {facts['bytes_per_event']:.2f} bytes/event"
    if facts["bytes_per_hour"] is not None:
        size += f", {format_bytes(facts['bytes_per_hour'])}/hour"
    lines.append(("size", size))
    if facts["events"] == 0:
        lines.append(("", "this process made no CUDA event"))
    if run := describe_run(record):
        lines.append(("run", ", ".join(run)))
    for i, phrase in enumerate(describe_training(record)):
        lines.append(("" if i else "trained", phrase))
    if simulated := facts["simulated"]:
        gpu = simulated.get("gpu") if isinstance(simulated, dict) else simulated
        name = str(gpu).removeprefix("Simulated ")
        lines.append(("simulated", f"{name}: there was no GPU"))
    lines += [("problem", problem) for problem in facts["problems"]]
    return lines


def _sudden_end(facts: Mapping[str, Any]) -> str:
    recovered = "; what it had not written was recovered" if facts["end"] == "recovered" else ""
    return f"ended without clean close{recovered}"
