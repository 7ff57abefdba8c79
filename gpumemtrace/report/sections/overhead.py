"""What the recording itself cost."""

from __future__ import annotations

from typing import Any

from gpumemtrace.report.results import Results

__all__ = ["NAME", "TITLE", "gather"]

NAME = "overhead"
TITLE = "Cost of recording"


def gather(results: Results) -> dict[str, Any]:
    """Return the recorder's own figures; None where it did not say."""
    summary = results.summary
    overhead = summary.overhead
    return {
        "file_bytes": summary.file_bytes,
        "events": summary.events,
        "duration_s": summary.duration_s,
        "bytes_per_event": overhead.bytes_per_event,
        "bytes_per_hour": overhead.bytes_per_hour,
        "ring_high_water": overhead.ring_high_water,
        "ring_capacity": overhead.ring_capacity,
        "drain_cpu_s": overhead.drain_cpu_s,
    }
