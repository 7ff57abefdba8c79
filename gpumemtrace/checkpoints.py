"""Places in the middle of a trace where a slice can begin to be read, as if from the beginning.

What an analysis of a slice needs from before it: the step and the phases that were open, and for
the lines of memory the blocks that were in use and the allocator's counters. The records before
are passed by once, without keeping anything but that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpumemtrace import _core
from gpumemtrace.batches import OpenPhases, Piece
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind

__all__ = ["Checkpoint", "CheckpointFinder", "begins_at_record", "begins_at_time", "begins_in_step"]


@dataclass(frozen=True)
class Checkpoint:
    """The beginning of piece ``piece`` of a source, and what the records before have left.

    ``record``: how many there are. The others are to be copied, not fed.
    """

    piece: int
    record: int
    resolver: _core.MarkResolver
    open_phases: OpenPhases
    lines: _core.LineBuilder

    @staticmethod
    def at_beginning(driving_thread: int) -> Checkpoint:
        """Return the beginning of a trace."""
        resolver = _core.MarkResolver(driving_thread)
        return Checkpoint(0, 0, resolver, OpenPhases(), _core.LineBuilder())


class CheckpointFinder:
    """Finds the last place before a slice as pieces go by: ``found``, None before it is reached."""

    def __init__(self, start: Checkpoint, begins_in: Callable[[Batch], bool]) -> None:
        """Begin at ``start``; ``begins_in`` says whether the slice begins in a batch."""
        self.found: Checkpoint | None = None
        self._begins_in = begins_in
        self._open_phases, self._lines = start.open_phases.copy(), start.lines.copy()

    def feed(self, piece: Piece) -> None:
        """Take the next piece."""
        if self.found is not None:
            return
        if any(self._begins_in(batch) for batch in piece.batches):
            self.found = Checkpoint(
                piece.number, piece.first_record, piece.resolver, self._open_phases, self._lines
            )
            return
        for batch in piece.batches:
            self._open_phases.feed(batch)
            self._lines.pass_by(batch.raw)


def begins_in_step(first: int, end: int) -> Callable[[Batch], bool]:
    """Return whether a mark in a batch begins one of the steps ``first`` to ``end`` (exclusive)."""

    def begins_in(batch: Batch) -> bool:
        begun = batch.raw["size_bytes"][batch.rows_of(Kind.STEP)]
        return bool(((begun >= first) & (begun < end)).any())

    return begins_in


def begins_at_time(start_ns: int) -> Callable[[Batch], bool]:
    """Return whether a batch has a record at ``start_ns`` or later."""
    return lambda batch: bool(np.any(batch.raw["time_ns"] >= start_ns))


def begins_at_record(first: int) -> Callable[[Batch], bool]:
    """Return whether a batch holds record ``first``."""
    return lambda batch: first < batch.first_record + len(batch)
