"""What lies between the events of a trace: steps, phases, and every other rare record.

`MarksBuilder` collects them from the batches of one pass; its memory is that of the marks, not of
the events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.records import RAW_COLUMNS, Batch, Records
from gpumemtrace.schema import Kind, PhaseFlags, StepFlags

__all__ = [
    "KEPT_KINDS",
    "Marks",
    "MarksBuilder",
    "PhaseSpan",
    "PhaseSpans",
    "Step",
    "Steps",
    "begins_at_step",
]

# Kinds of which there are a few per step; readings and samples may be as many as the events.
KEPT_KINDS = frozenset(
    {
        Kind.ALLOC_FAILED,
        Kind.RETRY,
        Kind.EMPTY_CACHE,
        Kind.PHASE,
        Kind.STEP,
        Kind.MARK,
        Kind.GAP,
        Kind.AGED,
    }
)

_MOST_KINDS = 256


@dataclass(frozen=True)
class Step:
    """One completed step: events ``first_event`` to ``end_event`` (exclusive)."""

    number: int
    start_ns: int
    end_ns: int
    first_event: int
    end_event: int

    @property
    def duration_s(self) -> float:
        """Seconds from the beginning to the end of the step."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True)
class Steps:
    """The completed steps of a trace, as a sequence of `Step` and as int64 arrays.

    ``number``; ``start_ns``, ``end_ns``; ``first_event``, ``end_event`` (exclusive); ``count``: how
    many steps a row stands for, 1 but where a limit of disk space left several told as one, by the
    number of the first. ``len()`` counts rows, `total` the steps of the run.
    """

    number: npt.NDArray[np.int64]
    start_ns: npt.NDArray[np.int64]
    end_ns: npt.NDArray[np.int64]
    first_event: npt.NDArray[np.int64]
    end_event: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]

    @property
    def total(self) -> int:
        """How many steps were completed, those that are told as one too."""
        return int(self.count.sum())

    @property
    def singles(self) -> Steps:
        """The steps that are told one by one: what is asked per step is known of these."""
        kept = self.count == 1
        return Steps(**{name: column[kept] for name, column in vars(self).items()})

    def __len__(self) -> int:
        return len(self.number)

    def __getitem__(self, index: int) -> Step:
        return Step(
            int(self.number[index]),
            int(self.start_ns[index]),
            int(self.end_ns[index]),
            int(self.first_event[index]),
            int(self.end_event[index]),
        )

    def __iter__(self) -> Iterator[Step]:
        return (self[i] for i in range(len(self)))


@dataclass(frozen=True)
class PhaseSpan:
    """A stretch during which one phase was the innermost one open on one thread."""

    path: tuple[str, ...]
    thread: int
    start_ns: int
    end_ns: int
    first_event: int
    end_event: int
    entered: bool

    @property
    def name(self) -> str:
        """The innermost phase."""
        return self.path[-1]


@dataclass(frozen=True)
class PhaseSpans:
    """Every stretch of every phase, by thread and time, as a sequence and as arrays.

    A phase with another one nested inside comes in several stretches: only the first is
    ``entered``. ``path``: index into ``paths``; ``thread``; ``start_ns``, ``end_ns``;
    ``first_event``, ``end_event`` (exclusive).
    """

    paths: tuple[tuple[str, ...], ...]
    path: npt.NDArray[np.int32]
    thread: npt.NDArray[np.uint32]
    start_ns: npt.NDArray[np.int64]
    end_ns: npt.NDArray[np.int64]
    first_event: npt.NDArray[np.int64]
    end_event: npt.NDArray[np.int64]
    entered: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.path)

    def __getitem__(self, index: int) -> PhaseSpan:
        return PhaseSpan(
            self.paths[self.path[index]],
            int(self.thread[index]),
            int(self.start_ns[index]),
            int(self.end_ns[index]),
            int(self.first_event[index]),
            int(self.end_event[index]),
            bool(self.entered[index]),
        )

    def __iter__(self) -> Iterator[PhaseSpan]:
        return (self[i] for i in range(len(self)))


@dataclass(frozen=True)
class Marks:
    """The rare records of a trace (`KEPT_KINDS`), and what one pass counts on the way.

    ``records``: raw columns, with ``step``, ``phase``, ``phase_path``; ``event``: the number of
    events before the record; ``record``: its place among all records; ``own_path``: index of the
    path that a phase mark names. ``counts``: records by kind.
    """

    records: Records
    counts: npt.NDArray[np.int64]
    first_ns: int
    last_ns: int
    devices: tuple[int, ...]
    active_devices: tuple[int, ...]
    unknown_phases: int
    begins_at_step: bool  # the first record is a mark that begins a step and ends none
    begins_inside_step: bool  # a slice of time: the step that it begins in began before it

    @property
    def events(self) -> int:
        """Allocs and frees."""
        return int(self.counts[Kind.ALLOC] + self.counts[Kind.FREE])

    @property
    def record_count(self) -> int:
        """Records of any kind."""
        return int(self.counts.sum())

    def of(self, *kinds: Kind) -> Records:
        """Return the records of ``kinds``, in order."""
        chosen = np.isin(self.records["kind"], kinds)
        return {name: column[chosen] for name, column in self.records.items()}

    @cached_property
    def together(self) -> dict[int, int]:
        """How many steps are told as one, by the number of the first of them."""
        aged = self.of(Kind.AGED)
        pairs = zip(aged["step"].tolist(), aged["flags"].tolist(), strict=True)
        return {step: count for step, count in pairs if count > 1}

    def counts_of(self, number: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how many steps are told by each of the given numbers: 1 for most."""
        counts = np.ones(len(number), np.int64)
        if self.together:
            first, count = np.array(sorted(self.together.items()), np.int64).T
            place = np.minimum(np.searchsorted(first, number), len(first) - 1)
            is_told = first[place] == number
            counts[is_told] = count[place[is_told]]
        return counts

    def numbers_of(self, step: int) -> str:
        """Return the number of a step, or of all that are told as this one: ``33-303``."""
        count = self.together.get(step, 1)
        return str(step) if count == 1 else f"{step}-{step + count - 1}"

    def steps(self) -> Steps:
        """Return the completed steps: each mark that is not `StepFlags.SET` ended one."""
        marks = self.of(Kind.STEP)
        # What goes on before the first mark is step 0, or the step that a slice begins with.
        start_ns = np.concatenate([[self.first_ns], marks["time_ns"][:-1]])
        first_event = np.concatenate([[0], marks["event"][:-1]])
        number = np.concatenate([[0], marks["size_bytes"][:-1]])
        ended = (marks["flags"] & StepFlags.SET) == 0
        # A step that a mark says has begun before the trace is not a whole one.
        ended[1:] &= (marks["flags"][:-1] & StepFlags.INSIDE) == 0
        if self.begins_at_step or self.begins_inside_step:
            ended[:1] = False
        count = len(ended)
        number = number[:count][ended].astype(np.int64)
        return Steps(
            number=number,
            start_ns=start_ns[:count][ended].astype(np.int64),
            end_ns=marks["time_ns"][ended],
            first_event=first_event[:count][ended].astype(np.int64),
            end_event=marks["event"][ended],
            count=self.counts_of(number),
        )

    @property
    def ended_steps(self) -> int:
        """How many steps ended, also one that had begun before a slice of time."""
        marks = self.of(Kind.STEP)
        began_before = self.begins_inside_step and len(marks["flags"]) > 0
        return self.steps().total + bool(began_before and not marks["flags"][0] & StepFlags.SET)

    def phases(self, paths: tuple[tuple[str, ...], ...]) -> PhaseSpans:
        """Return the stretches between the phase marks of each thread."""
        marks = self.of(Kind.PHASE)
        order = np.argsort(marks["thread"], kind="stable")
        marks = {name: column[order] for name, column in marks.items()}
        is_last = np.ones(len(order), np.bool_)
        is_last[:-1] = marks["thread"][1:] != marks["thread"][:-1]
        end_ns = np.where(is_last, self.last_ns, np.roll(marks["time_ns"], -1))
        end_event = np.where(is_last, self.events, np.roll(marks["event"], -1))
        is_open = marks["own_path"] >= 0
        return PhaseSpans(
            paths=paths,
            path=marks["own_path"][is_open],
            thread=marks["thread"][is_open],
            start_ns=marks["time_ns"][is_open],
            end_ns=end_ns[is_open],
            first_event=marks["event"][is_open],
            end_event=end_event[is_open],
            entered=(marks["flags"][is_open] & PhaseFlags.ENTERED) != 0,
        )


def begins_at_step(first: Batch) -> bool:
    """Whether the first record of a trace or slice is a mark that begins a step and ends none."""
    is_step = first.raw["kind"][0] == Kind.STEP
    return bool(is_step and (first.first_record > 0 or first.raw["flags"][0] & StepFlags.SET))


class MarksBuilder:
    """Collects `Marks` (or the records of other kinds) from batches fed in order."""

    def __init__(self, kinds: Collection[Kind] = KEPT_KINDS) -> None:
        """Keep the records of ``kinds``."""
        self._is_kept = np.isin(np.arange(_MOST_KINDS), [int(kind) for kind in kinds])
        self._keeps_events = bool({Kind.ALLOC, Kind.FREE} & set(kinds))
        self._begins_at_step = False
        self._begins_inside_step = False
        self._rows: list[dict[str, npt.NDArray[Any]]] = []
        self._counts = np.zeros(_MOST_KINDS, np.int64)
        self._other_devices: set[int] = set()
        self._active_devices: set[int] = set()
        self._first_ns: int | None = None
        self._last_ns = 0

    def feed(self, batch: Batch) -> None:
        """Take the next batch."""
        if not len(batch):
            return
        raw, is_event, others = batch.raw, batch.is_event, batch.other_rows
        allocs = int(np.count_nonzero(raw["kind"] == Kind.ALLOC))
        # Kinds of a newer writer may be anything: they count as the last.
        kinds = np.minimum(raw["kind"][others], _MOST_KINDS - 1)
        self._counts += np.bincount(kinds, minlength=_MOST_KINDS)
        self._counts[Kind.ALLOC] += allocs
        self._counts[Kind.FREE] += len(batch) - len(others) - allocs
        self._active_devices.update(_devices_of_events(raw["device"], is_event, others))
        self._other_devices.update(np.unique(raw["device"][others]).tolist())
        if self._first_ns is None:
            self._first_ns = int(raw["time_ns"][0])
            self._last_ns = self._first_ns
            self._begins_at_step = begins_at_step(batch)
            self._begins_inside_step = batch.first_record > 0 and not self._begins_at_step
        # Clocks of several threads may step back a little: the end is the latest time seen.
        self._last_ns = max(self._last_ns, int(raw["time_ns"].max()))
        if self._keeps_events:
            kept = np.flatnonzero(self._is_kept[np.minimum(raw["kind"], _MOST_KINDS - 1)])
        else:
            kept = others[self._is_kept[kinds]]
        if not len(kept):
            return
        rows = {name: column[kept] for name, column in raw.items()}
        rows["step"] = batch.step[kept]
        rows["phase"] = batch.phase[kept]
        rows["phase_path"] = batch.phase_path[kept]
        rows["event"] = batch.events_before(kept)
        rows["record"] = batch.first_record + kept
        self._rows.append(rows)

    def finish(self, path_of_id: Callable[[npt.NDArray[Any]], npt.NDArray[np.int32]]) -> Marks:
        """Return what was collected; ``path_of_id`` is `PhaseNames.path_of_id`."""
        records: dict[str, npt.NDArray[Any]]
        if self._rows:
            names = list(self._rows[0])
            records = {name: np.concatenate([rows[name] for rows in self._rows]) for name in names}
        else:
            records = {name: np.zeros(0, dtype) for name, dtype in RAW_COLUMNS.items()}
            records |= {name: np.zeros(0, "i8") for name in ("step", "event", "record")}
            records |= {"phase": np.zeros(0, "i4"), "phase_path": np.zeros(0, "i4")}
        # The phase that a mark itself names; "phase" is what holds for the thread after it.
        is_phase = records["kind"] == Kind.PHASE
        ids = np.where(is_phase, records["size_bytes"], 0)
        records["own_path"] = path_of_id(ids)
        unknown = int(np.count_nonzero((ids != 0) & (records["own_path"] < 0)))
        for column in records.values():
            column.flags.writeable = False
        return Marks(
            records,
            self._counts,
            self._first_ns or 0,
            self._last_ns,
            tuple(sorted((self._active_devices | self._other_devices) - {-1})),
            tuple(sorted(self._active_devices - {-1})),
            unknown,
            self._begins_at_step,
            self._begins_inside_step,
        )


def _devices_of_events(
    devices: npt.NDArray[np.int16],
    is_event: npt.NDArray[np.bool_],
    others: npt.NDArray[np.intp],
) -> list[int]:
    """Like `numpy.unique` of the events' devices, without a copy where there is only one."""
    if len(others) == len(devices):
        return []
    only = devices[int(np.argmax(is_event))]
    if np.count_nonzero(devices != only) == np.count_nonzero(devices[others] != only):
        return [int(only)]
    found: list[int] = np.unique(devices[is_event]).tolist()
    return found
