"""What is said to the user from within the program that is recorded: a line on stderr."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from pathlib import Path
from typing import Protocol

from gpumemtrace.capture.output_path import takes_stream
from gpumemtrace.units import format_bytes, format_count

__all__ = ["describe_file", "describe_flight", "say"]


class _Stats(Protocol):
    @property
    def events(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def bytes_written(self) -> int: ...
    @property
    def error(self) -> str | None: ...
    @property
    def flight_files(self) -> list[str]: ...


def say(text: str) -> None:
    """Print ``text`` on stderr. Never raises: stderr may be closed, broken, or not there at all."""
    with contextlib.suppress(Exception):
        if sys.stderr is not None:  # else print() would take stdout, which is the program's
            print(f"gpumemtrace: {text}", file=sys.stderr)


def describe_file(path: Path, stats: _Stats) -> str:
    """Return what a recording has left behind in ``path``, and what to type next."""
    is_there = os.path.lexists(path)  # never raises
    path = _as_typed(path)
    if not is_there and stats.error is None:
        return f"nothing is at {path} any more: the trace was moved or deleted under way"
    if not is_there or stats.error == "the file was deleted":  # what is there is not ours
        return f"no trace is left: {path}: {stats.error}"
    wrote = "wrote"
    if stats.error is not None:
        wrote = f"wrote only the beginning of the run ({stats.error}) to"
    # Allocs and frees, which `summary` counts as events, and all else, such as phases.
    records = format_count(stats.events, "record")
    lost = f", {stats.dropped:,} lost" if stats.dropped else ""
    text = f"{wrote} {path} ({records}{lost}, {format_bytes(stats.bytes_written)})"
    if takes_stream(path):
        return text
    return f"{text}; next: gpumemtrace summary {shlex.quote(str(path))}"


def describe_flight(window: str, stats: _Stats) -> str:
    """Return which files a flight recording has left behind, and what to type next."""
    *earlier, last = (str(_as_typed(Path(file))) for file in stats.flight_files)
    cut = "" if stats.error is None else f", cut short: {stats.error}"
    also = f"; before: {', '.join(earlier)}" if earlier else ""
    lost = f", {stats.dropped:,} lost" if stats.dropped else ""
    return (
        f"wrote {last} (the last {window} of {stats.events:,} records{lost}, "
        f"{format_bytes(stats.bytes_written)}{cut}){also}; "
        f"next: gpumemtrace summary {shlex.quote(last)}"
    )


def _as_typed(path: Path) -> Path:
    with contextlib.suppress(ValueError, OSError):
        return path.relative_to(Path.cwd())
    return path
