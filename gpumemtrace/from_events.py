"""Plain columns of allocs and frees, checked and turned into the records of a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.records import MemorySource, Records, empty_records
from gpumemtrace.schema import Kind, PhaseFlags, StackState, StepFlags
from gpumemtrace.trace_file import Names

__all__ = ["EVENT_COLUMNS", "source_from_events"]

EVENT_COLUMNS: dict[str, np.dtype[Any]] = {
    name: np.dtype(dtype)
    for name, dtype in {
        "time_ns": "i8",
        "kind": "u1",
        "address": "u8",
        "size_bytes": "i8",
        "stream": "u8",
        "device": "i2",
        "thread": "u4",
        "step": "i8",
        "phase": "i4",
        "site": "u4",
    }.items()
}
_OPTIONAL = {"step", "phase", "site"}


def source_from_events(
    columns: Mapping[str, npt.ArrayLike],
    *,
    phase_names: Sequence[str] = (),
    module_names: Sequence[str] = (),
) -> MemorySource:
    """Return the records of ``columns`` (see `Trace.from_events`), marks put in between.

    A step or phase that changes from one event to the next becomes a mark before the second; a
    last mark ends the last step.
    """
    names = _checked_names("phase_names", phase_names)
    modules = _checked_names("module_names", module_names)
    events = _checked(columns, len(names), len(modules))
    count = len(events["kind"])
    step_marks = _step_marks(events.get("step"), count)
    phase_marks = _phase_marks(events.get("phase"), count)
    before = _insertions(count, step_marks["at"]) + _insertions(count, phase_marks["at"])
    place = np.arange(count) + before
    ends_step = count > 0 and "step" in events and int(events["step"][-1]) >= 0

    records = empty_records(count + len(step_marks["at"]) + len(phase_marks["at"]) + ends_step)
    for name in ("time_ns", "kind", "address", "size_bytes", "stream", "device", "thread"):
        records[name][place] = events[name]
    if "site" in events:
        records["site"][place] = events["site"]
    _put(records, events, place[phase_marks["at"]] - 1, phase_marks, Kind.PHASE)
    # A step begins before the phase that begins with it.
    has_phase = np.isin(step_marks["at"], phase_marks["at"])
    _put(records, events, place[step_marks["at"]] - 1 - has_phase, step_marks, Kind.STEP)
    if ends_step:
        last = {
            "at": np.array([count - 1]),
            "value": events["step"][-1:] + 1,
            "flags": np.zeros(1, np.uint32),
        }
        _put(records, events, np.array([len(records["kind"]) - 1]), last, Kind.STEP)
    tables = Names(
        phases={i: (0, n) for i, n in enumerate(names, start=1)},
        modules={i: (0, n) for i, n in enumerate(modules, start=1)},
        sites={i: (i, 0, StackState.OFF) for i in range(1, len(modules) + 1)},
    )
    return MemorySource(records, tables)


def _step_marks(step: npt.NDArray[np.int64] | None, count: int) -> Records:
    if step is None:
        return _no_marks()
    before = np.concatenate([np.zeros(min(count, 1), np.int64), step[:-1]])
    at = np.flatnonzero(step != before)
    # The first mark only says where counting begins, and what lies before step 0 is no step.
    is_set = (at == 0) | (before[at] < 0)
    flags = np.where(is_set, np.uint32(StepFlags.SET), np.uint32(0))
    return {"at": at, "value": step[at], "flags": flags}


def _phase_marks(phase: npt.NDArray[np.int32] | None, count: int) -> Records:
    if phase is None:
        return _no_marks()
    id = phase.astype(np.int64) + 1
    before = np.concatenate([np.zeros(min(count, 1), np.int64), id[:-1]])
    at = np.flatnonzero(id != before)
    flags = np.uint32(PhaseFlags.PROCESS_WIDE) | np.where(
        id[at] > 0, np.uint32(PhaseFlags.ENTERED), np.uint32(0)
    )
    return {"at": at, "value": id[at], "flags": flags}


def _no_marks() -> Records:
    return {"at": np.zeros(0, np.intp), "value": np.zeros(0, "i8"), "flags": np.zeros(0, "u4")}


def _insertions(count: int, at: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return for each event how many marks lie before it."""
    marks = np.zeros(count, np.int64)
    marks[at] = 1
    return np.cumsum(marks)


def _put(
    records: Records, events: Records, place: npt.NDArray[Any], marks: Records, kind: Kind
) -> None:
    records["kind"][place] = kind
    records["time_ns"][place] = events["time_ns"][marks["at"]]
    # One thread makes all marks, so that it is the driving one.
    records["thread"][place] = events["thread"][0] if len(events["thread"]) else 0
    records["size_bytes"][place] = marks["value"]
    records["flags"][place] = marks["flags"]
    records["device"][place] = -1


def _checked_names(argument: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise TypeError(f"{argument} must be a sequence of names, not one string")
    names = tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{argument} holds {name!r}, which is not a string")
        if names.count(name) > 1:
            raise ValueError(f"{argument} holds {name!r} twice")
    return names


def _checked(columns: Mapping[str, npt.ArrayLike], phase_count: int, module_count: int) -> Records:
    """Return the columns with their own dtypes, or raise what is wrong with which of them."""
    if unknown := sorted(set(columns) - set(EVENT_COLUMNS)):
        raise ValueError(f"unknown column {unknown[0]!r}: known are {', '.join(EVENT_COLUMNS)}")
    if missing := [n for n in EVENT_COLUMNS if n not in columns and n not in _OPTIONAL]:
        raise ValueError(f"column {missing[0]!r} is missing")
    arrays = {name: _converted(name, columns[name]) for name in EVENT_COLUMNS if name in columns}
    count = len(arrays["kind"])
    for name, array in arrays.items():
        if len(array) != count:
            raise ValueError(f"column {name!r} has {len(array)} rows, but 'kind' has {count}")
    is_alloc = arrays["kind"] == Kind.ALLOC
    _require(is_alloc | (arrays["kind"] == Kind.FREE), "kind", "must be 1 (alloc) or 2 (free)")
    _require(arrays["size_bytes"] >= 0, "size_bytes", "must not be negative")
    _require((arrays["device"] >= 0) | ~is_alloc, "device", "must not be negative for an alloc")
    if "phase" in arrays:
        phase = arrays["phase"]
        rule = f"must be -1 (none) or an index into the {phase_count} phase_names"
        _require((phase >= -1) & (phase < phase_count), "phase", rule)
    if "site" in arrays:
        rule = f"must be 0 (none) or 1 + an index into the {module_count} module_names"
        _require(arrays["site"] <= module_count, "site", rule)
    return arrays


def _converted(name: str, column: npt.ArrayLike) -> npt.NDArray[Any]:
    array = np.asarray(column)
    if array.size == 0:
        array = array.astype(EVENT_COLUMNS[name])
    if array.dtype.kind not in "iu":
        raise TypeError(f"column {name!r} must hold integers, not {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"column {name!r} must have one dimension, not {array.ndim}")
    wanted = EVENT_COLUMNS[name]
    if not np.can_cast(array.dtype, wanted, "safe") and array.size:
        limits = np.iinfo(wanted)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise ValueError(f"column {name!r} has values that do not fit into {wanted}")
    return array.astype(wanted)


def _require(holds: npt.NDArray[np.bool_], name: str, rule: str) -> None:
    if not holds.all():
        row = int(np.argmin(holds))
        raise ValueError(f"column {name!r} {rule}: row {row} does not")
