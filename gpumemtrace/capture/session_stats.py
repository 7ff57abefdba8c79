"""What a session has recorded, in figures."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

__all__ = ["SessionStats", "stats_of"]


@dataclass(frozen=True, kw_only=True)
class SessionStats:
    """What a session has recorded so far."""

    events: int
    """Events given to the file."""
    dropped: int
    """Events lost because the ring was full."""
    skipped: int
    """Allocator events between sessions of this process: nobody recorded them."""
    gaps: int
    """Places in the file where events were dropped."""
    stalls: int
    """Times that the program waited for room in the ring (``on_full="block"``)."""
    stalled_ns: int
    """How long it waited, all together."""
    bytes_written: int
    """Size of the file so far, in bytes."""
    ring_capacity: int
    """Events that the ring holds."""
    ring_high_water: int
    """The most events that were waiting in it."""
    error: str | None
    """Why nothing more is written (disk full, no permission, file deleted); None = all is well."""
    file_created: bool
    """False while no event has come that makes the file worth having."""
    flight_files: list[str]
    """Files that a flight recording has written so far."""


def stats_of(native: dict[str, Any]) -> SessionStats:
    """Return them from what the native session tells."""
    return SessionStats(**{f.name: native[f.name] for f in dataclasses.fields(SessionStats)})
