"""GIVEN columns of events, WHEN a trace is made, saved and opened, THEN they come back the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import PHASE_NAMES, TraceBuilder, event_columns

import gpumemtrace
from gpumemtrace.schema import Kind, PhaseFlags
from gpumemtrace.trace import Trace

COLUMNS = {
    "time_ns": "i8",
    "kind": "u1",
    "address": "u8",
    "size_bytes": "i8",
    "stream": "u8",
    "device": "i2",
    "thread": "u4",
    "step": "i8",
    "phase": "i4",
}


def small() -> dict[str, np.ndarray]:
    return {
        "time_ns": np.array([0, 10, 20]),
        "kind": np.array([1, 1, 2]),
        "address": np.array([512, 1024, 512]),
        "size_bytes": np.array([100, 200, 0]),
        "stream": np.zeros(3, np.int64),
        "device": np.zeros(3, np.int64),
        "thread": np.ones(3, np.int64),
    }


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(columns=event_columns())
def test_round_trip(tmp_path, columns):
    made = Trace.from_events(columns, phase_names=PHASE_NAMES)
    path = tmp_path / "a.gmt"
    made.save(path, force=True)
    opened = gpumemtrace.open(path)
    for trace in (made, opened):
        assert len(trace) == len(columns["kind"])
        assert trace.phase_names == PHASE_NAMES
        for name, dtype in COLUMNS.items():
            column = getattr(trace, name)
            assert column.dtype == np.dtype(dtype), name
            np.testing.assert_array_equal(column, columns[name], err_msg=name)
    assert opened.complete
    assert opened.problems == ()
    assert list(opened.steps) == list(made.steps)
    assert list(opened.phases) == list(made.phases)
    mine, theirs = made.lifetimes(), opened.lifetimes()
    for name in mine.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name), err_msg=name)


@settings(max_examples=30)
@given(columns=event_columns())
def test_every_step_of_the_column_is_complete(columns):
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES)
    step = columns["step"][columns["step"] >= 0]
    expected = step[np.diff(step, prepend=-2) != 0]
    assert trace.steps.number.tolist() == expected.tolist()
    for one in trace.steps:
        assert set(columns["step"][one.first_event : one.end_event]) == {one.number}


def test_step_and_phase_are_optional(tmp_path):
    trace = Trace.from_events(small())
    assert trace.step.tolist() == [0, 0, 0]
    assert trace.phase.tolist() == [-1, -1, -1]
    assert len(trace.steps) == 0
    assert trace.phase_names == ()
    trace.save(tmp_path / "a.gmt")
    assert gpumemtrace.open(tmp_path / "a.gmt").step.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"sizes": np.zeros(3)}, ValueError, "unknown column 'sizes'"),
        ({"kind": None}, ValueError, "column 'kind' is missing"),
        ({"address": np.zeros(2, np.int64)}, ValueError, "column 'address' has 2 rows"),
        ({"size_bytes": np.zeros(3)}, TypeError, "column 'size_bytes' must hold integers"),
        ({"kind": np.array([1, 3, 2])}, ValueError, "column 'kind' must be 1 .* row 1"),
        ({"size_bytes": np.array([1, -1, 0])}, ValueError, "column 'size_bytes' must not be"),
        ({"device": np.array([0, 0, 40000])}, ValueError, "column 'device' has values that do"),
        ({"device": np.array([0, -1, 0])}, ValueError, "column 'device' must not be negative"),
        ({"phase": np.array([0, 1, 2])}, ValueError, "column 'phase' must be -1 .* row 2"),
        ({"step": np.zeros((3, 1), int)}, ValueError, "column 'step' must have one dimension"),
    ],
)
def test_wrong_columns_are_named(change, error, message):
    columns = {name: column for name, column in (small() | change).items() if column is not None}
    with pytest.raises(error, match=message):
        Trace.from_events(columns, phase_names=["a", "b"])


@pytest.mark.parametrize(
    ("names", "error"), [("ab", TypeError), (["a", "a"], ValueError), ([1], TypeError)]
)
def test_wrong_phase_names(names, error):
    with pytest.raises(error, match="phase_names"):
        Trace.from_events(small(), phase_names=names)


def test_columns_can_not_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        Trace.from_events(small()).address[0] = 1


def test_columns_by_name():
    trace = Trace.from_events(small())
    assert trace["address"] is trace.address
    assert trace.lifetimes()["category"].tolist() == ["unknown", "unknown"]
    for table in (trace, trace.lifetimes()):
        with pytest.raises(KeyError):
            table["sizes"]


def test_nothing_is_overwritten_without_force(tmp_path):
    trace = Trace.from_events(small())
    trace.save(tmp_path / "a.gmt")
    with pytest.raises(FileExistsError):
        trace.save(tmp_path / "a.gmt")
    opened = gpumemtrace.open(tmp_path / "a.gmt")
    with pytest.raises(ValueError, match="read from"):
        opened.save(tmp_path / "a.gmt", force=True)
    opened.save(tmp_path / "b.gmt")
    assert gpumemtrace.open(tmp_path / "b.gmt").address.tolist() == [512, 1024, 512]


def test_time_resolution(tmp_path):
    columns = small() | {"time_ns": np.array([1049, 1150, 2260])}
    Trace.from_events(columns).save(tmp_path / "a.gmt", time_resolution_ns=100)
    rounded = gpumemtrace.open(tmp_path / "a.gmt").time_ns
    assert np.abs(rounded - columns["time_ns"]).max() < 100


def slow_marks(rows, driving):
    """Step and phase path id of each record, the obvious way."""
    step, own, wide, owner, result = 0, {}, 0, None, []
    for row in rows:
        thread = row["thread"]
        if row["kind"] == Kind.STEP:
            step = row["size_bytes"]
        if row["kind"] == Kind.PHASE:
            if row["flags"] & PhaseFlags.PROCESS_WIDE:
                wide, owner = row["size_bytes"], thread
            elif thread == owner:
                wide = 0
            own[thread] = row["size_bytes"]
        result.append((step, wide or own.get(thread, 0) or own.get(driving, 0)))
    return result


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["alloc", "phase", "phase", "wide", "step"]),
            st.integers(1, 4),
            st.sampled_from(["", "train", "train/forward", "data", "train/forward/attention"]),
        ),
        max_size=40,
    ),
    st.integers(1, 50),
)
def test_step_and_phase_of_each_record(script, batch_records):
    builder = TraceBuilder()
    driving = next((thread for what, thread, _ in script if what == "step"), None)
    for i, (what, thread, path) in enumerate(script):
        if what == "alloc":
            builder.alloc(512 * i, 10, thread=thread)
        elif what == "step":
            builder.step(i, thread=thread)
        else:
            flags = PhaseFlags.PROCESS_WIDE if what == "wide" else 0
            builder.phase(path, thread=thread, flags=flags)
    if driving is None:
        marks = [thread for what, thread, _ in script if what in ("phase", "wide")]
        driving = max(sorted(set(marks)), key=marks.count, default=0)
    trace = builder.trace(batch_records=batch_records)
    got = []
    for batch in trace.chunks():
        for step, path, phase in zip(batch.step, batch.phase_path, batch.phase, strict=True):
            names = trace.phase_paths[path] if path >= 0 else ()
            assert (names[-1] if names else None) == (
                trace.phase_names[phase] if phase >= 0 else None
            )
            got.append((int(step), names))
    expected = [
        (step, next((p for p, i in paths(builder) if i == id), ()))
        for step, id in slow_marks(builder.rows, driving)
    ]
    assert got == expected


def paths(builder: TraceBuilder) -> list[tuple[tuple[str, ...], int]]:
    result = []
    for id in builder.phases:
        names, at = [], id
        while at:
            at, name = builder.phases[at]
            names.append(name)
        result.append((tuple(reversed(names)), id))
    return result


def test_a_slice_is_the_part_between_two_steps():
    columns = {name: np.tile(column, 4) for name, column in small().items()}
    columns["step"] = np.repeat(np.arange(4), 3)
    trace = Trace.from_events(columns)
    part = trace.slice(steps=(1, 3))
    assert part.step.tolist() == [1, 1, 1, 2, 2, 2]
    assert part.steps.number.tolist() == [1, 2]
    assert [(s.first_event, s.end_event) for s in part.steps] == [(0, 3), (3, 6)]
    assert part.slice(steps=(2, 9)).step.tolist() == [2, 2, 2]
    assert trace.slice(steps=(0, 1)).steps.number.tolist() == [0]
    assert len(trace) == 12
    with pytest.raises(ValueError, match="no step in 7:9: the trace has steps 0 to 4"):
        trace.slice(steps=(7, 9))
    with pytest.raises(ValueError, match="steps 2:2"):
        trace.slice(steps=(2, 2))
    with pytest.raises(ValueError, match="a slice can't be saved"):
        part.save("never.gmt")


def test_a_slice_of_time_counts_no_step_that_it_cuts():
    builder = TraceBuilder()
    for step in range(4):  # begins at 1, 5, 9, 13 us; 3 more us each
        builder.step(step) if step else builder.phase("forward")
        builder.alloc(512 * (step + 1), 7).free(512 * (step + 1)).phase("forward")
    trace = builder.trace()
    part = trace.slice(time_ns=(6000, 14_000))
    assert part.time_ns.tolist() == [6000, 7000, 10_000, 11_000]
    assert part.step.tolist() == [1, 1, 2, 2]
    assert part.steps.number.tolist() == [2]
    assert part.phases[0].name == "forward"
    assert trace.slice(time_ns=(5000, 13_001)).steps.number.tolist() == [1, 2]
    assert part.slice(steps=(2, 3)).step.tolist() == [2, 2]
    assert trace.slice(time_ns=(0, 10**12)).record_count == trace.record_count
    with pytest.raises(ValueError, match="no step in 0:2: the trace has steps 2 to 3"):
        part.slice(steps=(0, 2))
    with pytest.raises(ValueError, match=r"no record in 1:2 s: the trace has 1e-06 to 1.6e-05 s"):
        trace.slice(time_ns=(10**9, 2 * 10**9))
    with pytest.raises(ValueError, match="time 2:1 s: the first must be"):
        trace.slice(time_ns=(2 * 10**9, 10**9))
    with pytest.raises(ValueError, match="one of steps and time_ns"):
        trace.slice(steps=(0, 1), time_ns=(0, 1))


@given(
    columns=event_columns(min_events=1), start=st.integers(0, 10**6), width=st.integers(1, 10**6)
)
def test_a_slice_of_time_is_a_run_of_records(columns, start, width):
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES)
    time_ns = trace.time_ns.tolist()
    first = next((i for i, t in enumerate(time_ns) if t >= start), None)
    end = next((i for i, t in enumerate(time_ns) if t >= start + width), len(time_ns))
    if first is None or first >= end:
        return
    part = trace.slice(time_ns=(start, start + width))
    assert part.time_ns.tolist() == time_ns[first:end]
    assert part.step.tolist() == trace.step.tolist()[first:end]


def test_the_records_between_the_events():
    builder = TraceBuilder(strings={3: "here"}).phase("data").alloc(512, 7)
    builder.add(Kind.MARK, size_bytes=3).add(Kind.DEVICE_USED, size_bytes=99).step(1)
    trace = builder.trace()
    assert len(trace) == 1
    mark = trace.records(Kind.MARK)
    assert trace.text(int(mark["size_bytes"][0])) == "here"
    assert mark["event"].tolist() == [1]
    sample = trace.records(Kind.DEVICE_USED, Kind.STEP)
    assert sample["size_bytes"].tolist() == [99, 1]
    assert sample["step"].tolist() == [0, 1]


def test_lost_phase_names_are_a_problem():
    builder = TraceBuilder().phase("forward").alloc(512, 7)
    builder.rows[0]["size_bytes"] = 9
    trace = builder.trace()
    assert trace.phase.tolist() == [-1]
    assert [problem.kind for problem in trace.problems] == ["lost_names"]
