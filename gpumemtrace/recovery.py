"""What a killed process had recorded and not yet written: found again in shared memory.

The ring and the events that wait to be written lie in a file of ``/dev/shm`` while a session
records; the trace's run record names it. The next reader on that machine puts behind the trace what
is not in it yet, closes it, and removes the segment. docs/crashes.md tells the whole story.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpumemtrace import _core

__all__ = ["Recovery", "describe_recovered", "recover"]

SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What was done.

    ``outcome``: ``nothing`` (there is no segment), ``writer_lives``, ``left_alone``, ``in_file``
    (the trace is complete and closed now), ``in_memory`` (it would be, could it be written:
    ``tail`` would stand from byte ``offset`` on). ``why``: what stood in the way of more.
    """

    outcome: str
    why: str
    events: int
    offset: int
    tail: bytes


def recover(
    path: str | os.PathLike[str], run_record: Mapping[str, Any], *, is_closed: bool
) -> Recovery | None:
    """Complete the trace ``path`` if its process has ended and left something.

    Returns None where there was nothing to do.

    A trace that ``is_closed`` has all; a segment is removed that its process had no time to remove.
    """
    told = run_record.get("recovery")
    segment = told.get("segment") if isinstance(told, dict) else None
    if not isinstance(segment, str) or os.sep in segment:
        return None
    if not os.path.lexists(SHARED_MEMORY / segment) and is_closed:
        return None
    done = _core.recover(os.fsencode(path), segment, os.fspath(SHARED_MEMORY))
    return Recovery(**done)


def describe_recovered(footer: Mapping[str, Any]) -> str | None:
    """Return in words what the footer says of a recovery; None when there was none."""
    told = footer.get("recovered")
    if not isinstance(told, dict):
        return None
    text = (
        f"its process ended without closing it; {told.get('events', 0):,} records that were not "
        "written yet have been recovered from shared memory"
    )
    left_out = told.get("names_left_out")
    return f"{text}, but {left_out:,} names or texts have not" if left_out else text
