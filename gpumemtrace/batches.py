"""Records of a source, batch by batch, with the step and phase of each; and parts of them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gpumemtrace import _core
from gpumemtrace.phase_names import PhaseNames
from gpumemtrace.records import Batch, RecordSource
from gpumemtrace.schema import Kind, PhaseFlags

__all__ = ["END", "OpenPhases", "Piece", "find_driving_thread", "resolved_pieces", "window_of"]

# The number of a record behind the last one of any trace.
END = 1 << 62


@dataclass(frozen=True)
class Piece:
    """Batches that were read together: number ``number`` of its source.

    ``first_record``: records before it; ``resolver``: what they left, not to be fed.
    """

    number: int
    first_record: int
    resolver: _core.MarkResolver
    batches: tuple[Batch, ...]


def resolved_pieces(
    source: RecordSource,
    names: PhaseNames,
    resolver: _core.MarkResolver,
    *,
    first_piece: int = 0,
    first_record: int = 0,
) -> Generator[Piece, None, None]:
    """Yield all records of ``source`` from a piece on, with their step and phase.

    ``resolver`` and ``first_record``: what the records before have left. Events are counted from
    there on.
    """
    record, event = first_record, 0
    for number, raws in enumerate(source.pieces(first_piece), first_piece):
        before, piece_record = resolver.copy(), record
        batches = []
        for raw in raws:
            step, phase_id = resolver.feed(raw)
            path = names.path_of_id(phase_id)
            batch = Batch(raw, step, names.phase_of_path(path), path, event, record)
            batches.append(batch)
            record += len(batch)
            event += int(np.count_nonzero(batch.is_event))
        yield Piece(number, piece_record, before, tuple(batches))


def window_of(
    batches: Iterator[Batch], first: int, end: int, *, first_record: int, open_phases: OpenPhases
) -> Iterator[Batch]:
    """Yield records ``first`` to ``end`` (exclusive), those before as a lead-in.

    Record ``first`` comes alone, then marks of the phases that were open there. Events are counted
    from the window on. ``first_record``: the number of the first one in ``batches``;
    ``open_phases``: the phases open there.
    """
    record, event = first_record, 0
    for batch in batches:
        cut = [min(max(place - record, 0), len(batch)) for place in (first, first + 1, end)]
        is_beginning = record <= first < record + len(batch)
        record += len(batch)
        if cut[0] > 0:
            before = batch.window(0, cut[0], first_event=0, is_lead_in=True)
            open_phases.feed(before)
            yield before
        if is_beginning:
            first_one = batch.window(cut[0], cut[1], first_event=0, is_lead_in=False)
            yield first_one
            open_phases.forget(first_one)
            event += int(np.count_nonzero(batch.is_event[cut[0] : cut[1]]))
            yield from open_phases.marks(batch, cut[0], event)
        if cut[2] > cut[1]:
            inside = batch.window(cut[1], cut[2], first_event=event, is_lead_in=False)
            event += int(np.count_nonzero(inside.is_event))
            yield inside
        if record >= end:
            return


def find_driving_thread(source: RecordSource) -> int:
    """Return the thread that emits the steps; without steps, the one with the most phase marks.

    Reads only as far as the first step.
    """
    phase_marks: dict[int, int] = {}
    for raw in source.batches():
        steps = np.flatnonzero(raw["kind"] == Kind.STEP)
        if len(steps):
            return int(raw["thread"][steps[0]])
        threads, counts = np.unique(raw["thread"][raw["kind"] == Kind.PHASE], return_counts=True)
        for thread, count in zip(threads.tolist(), counts.tolist(), strict=True):
            phase_marks[thread] = phase_marks.get(thread, 0) + count
    return max(phase_marks, key=lambda thread: (phase_marks[thread], -thread), default=0)


class OpenPhases:
    """The phase mark that holds for each thread when a slice begins."""

    def __init__(self) -> None:
        """Begin with a trace."""
        self._marks: dict[int, Batch] = {}

    def copy(self) -> OpenPhases:
        """Return one that goes on from here by itself."""
        copied = OpenPhases()
        copied._marks.update(self._marks)
        return copied

    def feed(self, batch: Batch) -> None:
        """Take the next batch before the slice."""
        marks = np.flatnonzero(batch.raw["kind"] == Kind.PHASE)
        for thread in np.unique(batch.raw["thread"][marks]).tolist():
            last = int(marks[batch.raw["thread"][marks] == thread][-1])
            mark = batch.window(last, last + 1, first_event=0, is_lead_in=False)
            # A copy: views would keep the whole batch.
            raw = {name: column.copy() for name, column in mark.raw.items()}
            self._marks[thread] = replace(
                mark, raw=raw, phase=mark.phase.copy(), phase_path=mark.phase_path.copy()
            )

    def forget(self, batch: Batch) -> None:
        """Drop what the marks of the slice's first record replace."""
        for thread in batch.raw["thread"][batch.rows_of(Kind.PHASE)].tolist():
            self._marks.pop(thread, None)

    def marks(self, batch: Batch, place: int, first_event: int) -> Iterator[Batch]:
        """Yield the marks again, at the time of record ``place`` of the slice's first batch."""
        for mark in self._marks.values():
            raw = {name: column.copy() for name, column in mark.raw.items()}
            raw["time_ns"][0] = batch.raw["time_ns"][place]
            raw["flags"][0] &= ~np.uint32(PhaseFlags.ENTERED)
            step = batch.step[place : place + 1]
            record = batch.first_record + place
            yield Batch(raw, step, mark.phase, mark.phase_path, first_event, record)
