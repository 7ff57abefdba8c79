"""What every analysis reads: the records of a trace with their step and phase.

Over 400 lines: the one class that users ask, with a documented property for each column.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.category_rules import CategoryRule
from gpumemtrace.checkpoints import Checkpoint
from gpumemtrace.confidential_source import ConfidentialSource
from gpumemtrace.from_events import EVENT_COLUMNS, source_from_events
from gpumemtrace.marks import KEPT_KINDS, Marks, MarksBuilder, PhaseSpans, Steps
from gpumemtrace.parts import Part
from gpumemtrace.phase_names import PhaseNames
from gpumemtrace.read_ahead import read_ahead
from gpumemtrace.records import Batch, Records, RecordSource, write_records
from gpumemtrace.schema import Kind
from gpumemtrace.sites import Sites
from gpumemtrace.trace_file import Problem

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["TraceData"]

# A trace of at most so many events keeps all columns when one is asked for.
_SMALL_EVENTS = 1 << 22


class TraceData:
    """The events of a run. Nothing is read before it is asked for.

    The public rows are the **events**: allocs and frees, in the order in which they happened.
    ``len(trace)`` counts them, and event numbers anywhere are indices into them. Their columns are
    attributes, read-only numpy arrays of that length:

    ===============  ======  =====================================================
    ``time_ns``      int64   nanoseconds since the trace began
    ``kind``         uint8   1 alloc, 2 free (`gpumemtrace.schema.Kind`)
    ``address``      uint64  of the block
    ``size_bytes``   int64   requested bytes of an alloc, 0 for a free
    ``stream``       uint64  the CUDA stream
    ``device``       int16
    ``thread``       uint32  small number, 1 = first thread seen
    ``step``         int64   training step, from 0
    ``phase``        int32   index into ``phase_names``, -1 = none
    ``site``         uint32  what made it: a number of ``sites``, 0 = not known
    ===============  ======  =====================================================

    Everything else in the file (marks, counters, samples, gaps) is reached by `records`, and in
    order with the events by `chunks`, which never holds the whole file in memory.
    """

    def __init__(
        self,
        source: RecordSource,
        *,
        category_rules: Sequence[CategoryRule] = (),
        _part: Part | None = None,
    ) -> None:
        """Read from ``source``; users call `gpumemtrace.open` or `from_events`.

        ``category_rules``: the user's own, see `gpumemtrace.category_rules`.
        """
        self._source = source
        self._names = PhaseNames(source.names.phases)
        self._part = _part or Part(source, self._names)
        self.category_rules = tuple(category_rules)
        self._marks_known: Marks | None = None
        self._columns: dict[str, npt.NDArray[Any]] = {}

    @classmethod
    def from_events(
        cls,
        columns: Mapping[str, npt.ArrayLike],
        *,
        phase_names: Sequence[str] = (),
        module_names: Sequence[str] = (),
    ) -> Self:
        """Return a trace of the given events; for converters, tests and benchmarks.

        ``columns`` maps names to integer arrays of one length: ``time_ns``, ``kind`` (1 alloc,
        2 free), ``address``, ``size_bytes`` (0 for a free), ``stream``, ``device``, ``thread``, and
        optionally ``step``, ``phase`` (index into ``phase_names``, -1 for none) and ``site`` (1 +
        index into ``module_names``, 0 for none). With a ``step`` column every step in it counts as
        completed.

        Raises `ValueError` or `TypeError` naming the column that is wrong.
        """
        return cls(source_from_events(columns, phase_names=phase_names, module_names=module_names))

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        time_resolution_ns: int = 1,
        force: bool = False,
    ) -> None:
        """Write the trace to ``path``; times are rounded to ``time_resolution_ns``.

        Raises `FileExistsError` if ``path`` exists, unless ``force``; `ValueError` for a slice,
        which would lack the blocks that were live when it began.
        """
        if not self._part.is_whole:
            raise ValueError("a slice can't be saved: save the trace it was taken from")
        write_records(self._source, path, time_resolution_ns=time_resolution_ns, force=force)

    def without_paths(self) -> Self:
        """Return the trace as one to share: as ``install(confidential=True)`` would record it.

        Its texts tell no folders, nor the host: of the files of call sites the name is kept (and
        what lies behind ``site-packages``), of paths among the arguments of the program, and of
        absolute ones in any text, the last part. Raises `ValueError` for a slice.
        """
        if not self._part.is_whole:
            raise ValueError("a slice keeps its paths: take them out of the trace it is a slice of")
        return type(self)(ConfidentialSource(self._source), category_rules=self.category_rules)

    # -- what the trace is ------------------------------------------------------------------

    def __len__(self) -> int:
        return self.marks.events

    def __repr__(self) -> str:
        where = self.path or "in memory"
        part = "" if self._part.is_whole else ", a slice"
        return f"<gpumemtrace.Trace {where}{part}>"

    @property
    def path(self) -> str | None:
        """The file, None for a trace in memory."""
        return self._source.path

    @property
    def format_version(self) -> str:
        """The version of the file format, ``"in memory"`` without a file."""
        return self._source.format_version

    @property
    def file_bytes(self) -> int:
        """The size of the file, 0 without one."""
        return self._source.file_bytes

    @property
    def run_record(self) -> Mapping[str, Any]:
        """What was written down about the run: script, arguments, versions, device, settings."""
        return self._source.run_record

    @property
    def footer(self) -> Mapping[str, Any]:
        """What the recorder said at the end: ``reason``, ``totals``; empty without an end."""
        return self._source.footer

    @property
    def complete(self) -> bool:
        """Whether the recording was closed in an orderly way."""
        return self._source.complete

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the file. Reads it once, as damage shows only then."""
        unknown = self.marks.unknown_phases
        found = tuple(self._source.problems)
        if unknown:
            message = f"{unknown} phase marks have names that were lost; they count as no phase"
            found += (Problem(kind="lost_names", offset=0, message=message),)
        return found

    @property
    def phase_names(self) -> tuple[str, ...]:
        """The names of the phases; the ``phase`` column indexes it."""
        return self._names.names

    @property
    def phase_paths(self) -> tuple[tuple[str, ...], ...]:
        """The phases as they were nested, outermost name first."""
        return self._names.paths

    @cached_property
    def sites(self) -> Sites:
        """The modules and call sites that the ``site`` column stands for; empty without them."""
        return Sites(self._source.names)

    @property
    def steps(self) -> Steps:
        """The completed steps: numbers, times, events."""
        return self.marks.steps()

    @property
    def phases(self) -> PhaseSpans:
        """Every stretch of every phase: path, thread, times, events."""
        return self.marks.phases(self._names.paths)

    @property
    def driving_thread(self) -> int:
        """The thread whose phase holds for threads without one of their own.

        The one that emits the steps; without steps, the one with the most phase marks.
        """
        return self._part.driving_thread

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices that have records."""
        return self.marks.devices

    @property
    def record_count(self) -> int:
        """How many records there are: events, marks, samples."""
        return self.marks.record_count

    @property
    def whole_record_count(self) -> int:
        """The records of the whole trace, also for a slice; by the outline of the file."""
        return self._source.record_count

    @property
    def whole(self) -> Self:
        """The trace that this one is a slice of; itself if it is none."""
        if self._part.is_whole:
            return self
        return self._of(self._part.whole)

    @property
    def dropped_events(self) -> int:
        """Records that were lost, as far as the trace can count them."""
        return int(self.marks.of(Kind.GAP)["address"].sum())

    @property
    def active_devices(self) -> tuple[int, ...]:
        """The devices on which something was allocated."""
        return self.marks.active_devices

    @property
    def time_span_ns(self) -> tuple[int, int]:
        """The times of the first and the last record. Does not read a whole file for it."""
        if self._marks_known is None and self._part.is_whole:
            return self._source.time_span_ns
        return self.marks.first_ns, self.marks.last_ns

    @property
    def duration_ns(self) -> int:
        """Nanoseconds from the first record to the last."""
        return self.marks.last_ns - self.marks.first_ns

    @property
    def marks(self) -> Marks:
        """The rare records and counts, collected in one pass over the trace."""
        if self._marks_known is None:
            for _ in self.chunks():
                pass
        assert self._marks_known is not None
        return self._marks_known

    def phase_name(self, index: int) -> str | None:
        """Return the name for a value of the ``phase`` column; None for -1."""
        return self.phase_names[index] if index >= 0 else None

    def path_of_id(self, ids: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Return the index into `phase_paths` for path ids as in phase marks; -1 = none."""
        return self._names.path_of_id(ids)

    def text(self, id: int) -> str:
        """Return the text of a mark or tag by its id."""
        return self._source.names.strings.get(id, f"text {id}, lost")

    # -- what is in it ----------------------------------------------------------------------

    @property
    def time_ns(self) -> npt.NDArray[np.int64]:
        """Nanoseconds since the trace began (int64, one row per event)."""
        return self.columns("time_ns")["time_ns"]

    @property
    def kind(self) -> npt.NDArray[np.uint8]:
        """1 alloc, 2 free (uint8, one row per event)."""
        return self.columns("kind")["kind"]

    @property
    def address(self) -> npt.NDArray[np.uint64]:
        """Address of the block (uint64, one row per event)."""
        return self.columns("address")["address"]

    @property
    def size_bytes(self) -> npt.NDArray[np.int64]:
        """Requested bytes of an alloc, 0 for a free (int64, one row per event)."""
        return self.columns("size_bytes")["size_bytes"]

    @property
    def stream(self) -> npt.NDArray[np.uint64]:
        """The CUDA stream (uint64, one row per event)."""
        return self.columns("stream")["stream"]

    @property
    def device(self) -> npt.NDArray[np.int16]:
        """The device (int16, one row per event)."""
        return self.columns("device")["device"]

    @property
    def thread(self) -> npt.NDArray[np.uint32]:
        """The thread: a small number, 1 = the first seen (uint32, one row per event)."""
        return self.columns("thread")["thread"]

    @property
    def step(self) -> npt.NDArray[np.int64]:
        """The training step, from 0 (int64, one row per event)."""
        return self.columns("step")["step"]

    @property
    def phase(self) -> npt.NDArray[np.int32]:
        """The phase: index into `phase_names`, -1 = none (int32, one row per event)."""
        return self.columns("phase")["phase"]

    @property
    def site(self) -> npt.NDArray[np.uint32]:
        """What made it: a number of `sites`, 0 = not known (uint32, one row per event)."""
        return self.columns("site")["site"]

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        """Return a column by its name."""
        if column not in EVENT_COLUMNS:
            raise KeyError(column)
        return self.columns(column)[column]

    def columns(self, *names: str) -> dict[str, npt.NDArray[Any]]:
        """Return the named event columns (all without names), in one pass over the trace."""
        wanted = names or tuple(EVENT_COLUMNS)
        if unknown := [name for name in wanted if name not in EVENT_COLUMNS]:
            raise ValueError(f"unknown column {unknown[0]!r}: known are {', '.join(EVENT_COLUMNS)}")
        if any(name not in self._columns for name in wanted):
            if len(self) <= _SMALL_EVENTS:
                wanted = tuple(EVENT_COLUMNS)
            self._columns |= self._read_columns([n for n in wanted if n not in self._columns])
        return {name: self._columns[name] for name in (names or wanted)}

    def _read_columns(self, names: list[str]) -> dict[str, npt.NDArray[Any]]:
        columns = {name: np.empty(len(self), EVENT_COLUMNS[name]) for name in names}
        for batch in self.chunks():
            is_event = batch.is_event
            place = slice(batch.first_event, batch.first_event + np.count_nonzero(is_event))
            for name, column in columns.items():
                whole = getattr(batch, name) if name in ("step", "phase") else batch.raw[name]
                column[place] = whole[is_event]
        for column in columns.values():
            column.flags.writeable = False
        return columns

    def chunks(self, *, lead_in: bool = False) -> Iterator[Batch]:
        """Yield *all* records in order, a bounded number at a time, with step and phase.

        ``lead_in``: for a slice, yield the records before it first (``batch.is_lead_in``), for
        analyses that carry state, such as which blocks are in use. Without, and for the lines of
        memory (`chunks_and_lines`), reading begins shortly before the slice.
        """
        if lead_in:
            yield from read_ahead(self._chunks(self._part.beginning))
        else:
            for batch in read_ahead(self._chunks(self._part.checkpoint())):
                if not batch.is_lead_in:
                    yield batch

    def chunks_and_lines(self) -> tuple[Iterator[Batch], _core.LineBuilder]:
        """Return all records, and the lines as the records before the first of those left them.

        Of a slice, the last records before it come first (``batch.is_lead_in``).
        """
        start = self._part.checkpoint()
        return read_ahead(self._chunks(start)), start.lines.copy()

    def _chunks(self, start: Checkpoint) -> Generator[Batch, None, None]:
        builder = MarksBuilder() if self._marks_known is None else None
        for batch in self._part.batches(start):
            if builder is not None and not batch.is_lead_in:
                builder.feed(batch)
            yield batch
        if builder is not None:
            self._marks_known = builder.finish(self._names.path_of_id)

    def records(self, *kinds: Kind) -> Records:
        """Return the records of ``kinds`` as columns, with step, phase and ``event``.

        ``event`` is the number of events before the record. Do not ask for allocs and frees of a
        large trace like this: use `columns` or `chunks`.
        """
        if set(kinds) <= KEPT_KINDS:
            return self.marks.of(*kinds)
        builder = MarksBuilder(kinds)
        for batch in self.chunks():
            builder.feed(batch)
        return builder.finish(self._names.path_of_id).records

    def slice(
        self, *, steps: tuple[int, int] | None = None, time_ns: tuple[int, int] | None = None
    ) -> Self:
        """Return a part of the trace, by one of two ways.

        ``steps``: from the beginning of step ``steps[0]`` to that of ``steps[1]``. ``time_ns``:
        from the first record at ``time_ns[0]`` or later to the last one before ``time_ns[1]``,
        nanoseconds since the trace began; a step that is cut counts as not completed.

        Raises `ValueError` for both or neither, or if the trace has no such step or time.
        """
        if (steps is None) == (time_ns is None):
            raise ValueError("a slice is one of steps and time_ns")
        if time_ns is not None:
            return self._of(self._part.of_time(time_ns, lambda: self.time_span_ns))
        assert steps is not None
        return self._of(self._part.of_steps(steps, self._marks_known))

    def _of(self, part: Part) -> Self:
        return type(self)(self._source, category_rules=self.category_rules, _part=part)
