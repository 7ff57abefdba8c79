"""Damaged files: whatever is left is right, whatever is missing is named.

tests/native/test_reader.cc goes through every cut and every bit; here they are drawn.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_files import (
    NAMES,
    RECORD,
    any_columns,
    assert_equal,
    rows_of,
    training_columns,
    write_in_pieces,
)

from gpumemtrace.errors import CorruptTraceError, NotATraceError, TraceError
from gpumemtrace.trace_file import CODECS, Columns, TraceFile


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage") / "t.gmt"


def assert_nothing_wrong(file: TraceFile, columns: Columns) -> None:
    """What can be read are the original's events without those reported missing.

    Only a file without an end may lack more than it says, and then only at its end.
    """
    got = file.read()
    missing: set[int] = set()
    for problem in file.problems:
        count = problem.missing_count
        first = problem.first_missing_sequence
        missing |= set(range(first, len(columns["kind"]) if count is None else first + count))
    left = [row for row in range(len(columns["kind"])) if row not in missing]
    if len(got["kind"]) < len(left):
        assert any(problem.kind == "not_closed" for problem in file.problems)
        left = left[: len(got["kind"])]
    assert_equal(got, rows_of(columns, left))


@given(
    data=st.data(),
    columns=any_columns(max_size=30),
    piece=st.integers(1, 10),
    codec=st.sampled_from(CODECS),
)
def test_cut_anywhere(
    path: Path, data: st.DataObject, columns: Columns, piece: int, codec: int
) -> None:
    write_in_pieces(path, columns, piece, codec=codec)
    whole = path.read_bytes()
    chunks = TraceFile(path).chunks
    ends = chunks["offset"] + chunks["stored_bytes"]
    for size in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=10, max_size=10)):
        path.write_bytes(whole[:size])
        if size < 16:
            with pytest.raises(TraceError) as error:
                TraceFile(path)
            assert error.type is (CorruptTraceError if size else NotATraceError)
            continue
        file = TraceFile(path)
        assert "not_closed" in {problem.kind for problem in file.problems}
        assert len(file.read()["kind"]) == chunks["count"][ends <= size].sum()
        assert_nothing_wrong(file, columns)


@given(
    data=st.data(),
    columns=any_columns(max_size=30),
    piece=st.integers(1, 10),
    codec=st.sampled_from(CODECS),
)
def test_any_bit_flipped(
    path: Path, data: st.DataObject, columns: Columns, piece: int, codec: int
) -> None:
    write_in_pieces(path, columns, piece, codec=codec)
    damaged = bytearray(path.read_bytes())
    for bit in data.draw(st.lists(st.integers(0, 8 * len(damaged) - 1), min_size=10, max_size=10)):
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        file = TraceFile(path)
        assert_nothing_wrong(file, columns)
        assert file.verify(), "damage passed over in silence"
        damaged[bit // 8] ^= 1 << bit % 8


@given(data=st.data(), codec=st.sampled_from(CODECS))
def test_bytes_lost_inserted_or_overwritten(path: Path, data: st.DataObject, codec: int) -> None:
    columns = training_columns(40)
    write_in_pieces(path, columns, 10, codec=codec)
    damaged = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        first, last = sorted(data.draw(st.tuples(*[st.integers(16, len(damaged))] * 2)))
        filling = data.draw(st.sampled_from([b"", bytes(last - first), b"\xff" * 7]))
        damaged[first:last] = filling
    path.write_bytes(damaged)
    try:
        file = TraceFile(path)
    except TraceError:
        return
    assert_nothing_wrong(file, columns)


def test_what_is_said_of_a_damaged_chunk(path: Path) -> None:
    columns = training_columns(30)
    write_in_pieces(path, columns, 10)
    second = TraceFile(path).chunks[1]
    damaged = bytearray(path.read_bytes())
    damaged[second["offset"] + 100] ^= 1
    path.write_bytes(damaged)

    file = TraceFile(path)
    assert file.complete
    assert file.problems == ()  # not looked at yet
    (problem,) = file.verify()
    assert problem.kind == "damaged_chunk"
    assert problem.offset == second["offset"]
    assert problem.message == "chunk payload fails its checksum"
    assert (problem.first_missing_sequence, problem.missing_count) == (10, 10)
    assert_equal(file.read(), rows_of(columns, [*range(10), *range(20, 30)]))
    assert [len(piece["kind"]) for piece in file.iter()] == [10, 10]


def test_what_builds_on_a_damaged_chunk_is_reported_up_to_the_next_keyframe(path: Path) -> None:
    columns = training_columns(50)
    write_in_pieces(path, columns, 10, codec=2, events_per_keyframe=30)
    damaged = bytearray(path.read_bytes())
    damaged[TraceFile(path).chunks[0]["offset"] + 100] ^= 1
    path.write_bytes(damaged)

    first, *others = TraceFile(path).verify()
    assert first.message == "chunk payload fails its checksum"
    assert [problem.message for problem in others] == [
        "a chunk that this one builds on is damaged or missing"
    ] * 2
    assert [problem.first_missing_sequence for problem in (first, *others)] == [0, 10, 20]
    file = TraceFile(path)
    assert_equal(file.read(), rows_of(columns, slice(30, 50)))
    assert_equal(file.read(4, 5), rows_of(columns, slice(40, 50)))


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_that_is_being_written(path: Path, codec: int) -> None:
    columns = training_columns(30)
    write_in_pieces(path, columns, 10, close=False, codec=codec)
    file = TraceFile(path)
    assert not file.complete
    assert file.footer is None
    assert file.run_record == RECORD | {"rows": 30}
    assert file.names == NAMES
    assert [problem.kind for problem in file.problems] == ["not_closed"]
    assert_equal(file.read(), columns)

    path.write_bytes(path.read_bytes()[: file.chunks[2]["offset"] + 110])
    file = TraceFile(path)
    assert [(p.kind, p.first_missing_sequence, p.missing_count) for p in file.problems] == [
        ("truncated", 20, 10),
        ("not_closed", 0, 0),
    ]
    assert_equal(file.read(), rows_of(columns, slice(20)))


def test_loss_nobody_can_count(path: Path) -> None:
    write_in_pieces(path, training_columns(30), 10, close=False)
    file = TraceFile(path)
    path.write_bytes(path.read_bytes()[: file.chunks[2]["offset"] + 50])
    problem = TraceFile(path).problems[0]
    assert (problem.kind, problem.first_missing_sequence, problem.missing_count) == (
        "truncated",
        20,
        None,
    )
