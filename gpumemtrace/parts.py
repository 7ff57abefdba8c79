"""A trace, or a part of it, as the records that it is made of, and where to begin to read them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import cached_property

from gpumemtrace.batches import END, Piece, find_driving_thread, resolved_pieces, window_of
from gpumemtrace.checkpoints import (
    Checkpoint,
    CheckpointFinder,
    begins_at_record,
    begins_at_time,
    begins_in_step,
)
from gpumemtrace.marks import Marks, MarksBuilder
from gpumemtrace.phase_names import PhaseNames
from gpumemtrace.read_ahead import read_ahead
from gpumemtrace.records import Batch, RecordSource
from gpumemtrace.schema import Kind
from gpumemtrace.slices import window_of_steps, window_of_time

__all__ = ["Part"]


class Part:
    """Records ``window[0]`` to ``window[1]`` (exclusive) of a source; without a window, all."""

    def __init__(
        self,
        source: RecordSource,
        names: PhaseNames,
        *,
        whole: Part | None = None,
        window: tuple[int, int] | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Take ``window`` of ``whole``; ``checkpoint``: a place not behind its beginning."""
        self._source, self._names = source, names
        self._window = window
        self._checkpoint = checkpoint
        self.whole: Part = self if whole is None else whole

    @property
    def is_whole(self) -> bool:
        """Whether these are all records of the source."""
        return self._window is None

    @cached_property
    def driving_thread(self) -> int:
        """See `find_driving_thread`."""
        if not self.is_whole:
            return self.whole.driving_thread
        return find_driving_thread(self._source)

    @property
    def beginning(self) -> Checkpoint:
        """The beginning of the whole."""
        return Checkpoint.at_beginning(self.driving_thread)

    def checkpoint(self) -> Checkpoint:
        """Return the last place before this part where reading can begin."""
        if self._window is None:
            return self.beginning
        if self._checkpoint is None:
            finder = CheckpointFinder(self.beginning, begins_at_record(self._window[0]))
            for piece in read_ahead(self._pieces(self.beginning)):
                finder.feed(piece)
                if finder.found is not None:
                    break
            self._checkpoint = finder.found or self.beginning
        return self._checkpoint

    def batches(
        self, start: Checkpoint, finder: CheckpointFinder | None = None
    ) -> Generator[Batch, None, None]:
        """Yield the records from ``start`` on, those before the part as a lead-in.

        ``finder`` sees each piece before it is yielded.
        """
        batches = self._seen(start, finder)
        if self._window is not None:
            batches = window_of(
                batches,
                *self._window,
                first_record=start.record,
                open_phases=start.open_phases.copy(),
            )
        yield from batches

    def of_steps(self, steps: tuple[int, int], marks: Marks | None) -> Part:
        """Return the part from one step to another; ``marks``: those of this part, if known.

        Raises `ValueError` if there is no such step.
        """
        within = self._window or (0, END)
        if marks is not None:
            return self._of(window_of_steps(marks, steps, within), None)
        finder = CheckpointFinder(self.checkpoint(), begins_in_step(*steps))
        builder = MarksBuilder((Kind.STEP,))
        for batch in self.batches(self.checkpoint(), finder):
            if not batch.is_lead_in:
                builder.feed(batch)
                if (batch.raw["size_bytes"][batch.rows_of(Kind.STEP)] >= steps[1]).any():
                    break
        marks = builder.finish(self._names.path_of_id)
        return self._of(window_of_steps(marks, steps, within), finder.found)

    def of_time(self, time_ns: tuple[int, int], span_ns: Callable[[], tuple[int, int]]) -> Part:
        """Return the part from one time to another; ``span_ns``: asked for an error's text.

        Raises `ValueError` if there is no record in it.
        """
        finder = CheckpointFinder(self.checkpoint(), begins_at_time(time_ns[0]))
        batches = self.batches(self.checkpoint(), finder)
        window = window_of_time(batches, time_ns, self._window or (0, END), span_ns)
        return self._of(window, finder.found)

    def _of(self, window: tuple[int, int], found: Checkpoint | None) -> Part:
        if found is not None and found.record > window[0]:
            found = None
        return Part(self._source, self._names, whole=self.whole, window=window, checkpoint=found)

    def _pieces(self, start: Checkpoint) -> Generator[Piece, None, None]:
        return resolved_pieces(
            self._source,
            self._names,
            start.resolver.copy(),
            first_piece=start.piece,
            first_record=start.record,
        )

    def _seen(self, start: Checkpoint, finder: CheckpointFinder | None) -> Iterator[Batch]:
        # With a finder there is work enough for two processors.
        pieces = self._pieces(start)
        for piece in pieces if finder is None else read_ahead(pieces):
            if finder is not None:
                finder.feed(piece)
            yield from piece.batches
