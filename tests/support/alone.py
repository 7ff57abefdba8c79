"""Tests that measure what a thing costs: while one runs, no other does, in any worker.

``pytest -n`` runs tests in several processes. One that is marked ``alone`` waits until the others
have ended theirs, and they wait for it.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["turn"]

# Files that every worker has; what is in them is of no concern.
_DOOR = Path(__file__)
_ROOM = Path(__file__).with_name("simgpu.py")


@contextmanager
def turn(*, alone: bool, door_file: Path = _DOOR, room_file: Path = _ROOM) -> Iterator[None]:
    """Wait until the test may run, and have the room, alone or with others, until its end."""
    with door_file.open() as door, room_file.open() as room:
        # One after the other through the door, else those who share the room might never leave it.
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            # By name: a child that was forked may have the file open for longer.
            fcntl.flock(room, fcntl.LOCK_UN)
