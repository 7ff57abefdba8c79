"""What has become of the recordings of this process, and the line that tells it."""

from __future__ import annotations

from pathlib import Path

from gpumemtrace.capture.options import RecordingOptions
from gpumemtrace.capture.say import describe_file, describe_flight, say
from gpumemtrace.capture.session_stats import SessionStats

__all__ = ["has_recorded", "tell"]

_has_recorded = False


def tell(stats: SessionStats, path: Path, options: RecordingOptions, *, aloud: bool) -> None:
    """Keep in mind that a session has ended; with ``aloud`` say where its file is, if any."""
    global _has_recorded
    window = options.flight_recorder  # which writes only when it has to
    _has_recorded |= stats.file_created or stats.error is not None or window is not None
    if aloud and stats.file_created:
        say(describe_file(path, stats) if window is None else describe_flight(window, stats))


def has_recorded() -> bool:
    """Return whether a session of this process has left something behind, or said why not."""
    return _has_recorded
