"""What is said to the user from within the program that is recorded: a line on stderr."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from pathlib import Path
from typing import Protocol

from gpumemtrace.units import format_count

__all__ = ["describe_file", "say"]


class _Stats(Protocol):
    @property
    def events(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def bytes_written(self) -> int: ...
    @property
    def error(self) -> str | None: ...


def say(text: str) -> None:
    """Print ``text`` on stderr. Never raises: stderr may be closed, broken, or not there at all."""
    with contextlib.suppress(Exception):
        if sys.stderr is not None:  # else print() would take stdout, which is the program's
            print(f"gpumemtrace: {text}", file=sys.stderr)


def describe_file(path: Path, stats: _Stats) -> str:
    """Return what a recording has left behind in ``path``, and what to type next."""
    is_there = os.path.lexists(path)  # never raises
    with contextlib.suppress(ValueError, OSError):
        path = path.relative_to(Path.cwd())
    if not is_there:
        return f"no trace is left: {path}: {stats.error or 'the file was deleted'}"
    wrote = "wrote"
    if stats.error is not None:
        wrote = f"wrote only the beginning of the run ({stats.error}) to"
    events = format_count(stats.events, "event")
    lost = f", {stats.dropped:,} lost" if stats.dropped else ""
    return (
        f"{wrote} {path} ({events}{lost}, {stats.bytes_written / 2**20:.1f} MiB); "
        f"next: gpumemtrace summary {shlex.quote(str(path))}"
    )
