"""What goes into a trace file comes out of it, whoever reads it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import recorded
from format_reader import read_trace
from hypothesis import given
from hypothesis import strategies as st
from trace_files import (
    NAMES,
    RECORD,
    any_columns,
    assert_equal,
    looping_columns,
    rows_of,
    training_columns,
    write_in_pieces,
)

from gpumemtrace.schema import COLUMNS, Kind
from gpumemtrace.trace_file import CODECS, Columns, FileWriter, Names, TraceFile


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("roundtrip") / "t.gmt"


ANY_COLUMNS = any_columns() | looping_columns()


@given(columns=ANY_COLUMNS, piece=st.integers(1, 30), codec=st.sampled_from(CODECS))
def test_any_events_come_back(path: Path, columns: Columns, piece: int, codec: int) -> None:
    write_in_pieces(path, columns, piece, codec=codec)
    file = TraceFile(path)
    assert_equal(file.read(), columns)
    assert file.complete
    assert file.problems == ()
    assert file.names == NAMES
    assert file.footer == {"reason": "end"}


def test_sites_come_back_and_stand_in_the_file_as_the_page_says(path: Path) -> None:
    names = Names(
        modules={1: (0, "Net"), 2: (1, "layers.0")},
        codes={1: ("train.py", "main", 3)},
        frames={1: (0, 1, 7), 2: (1, 1, 9)},
        sites={1: (2, 2, 1), 2: (1, 0, 3)},
    )
    with FileWriter(path, overwrite=True) as writer:
        writer.write_names(names)
        writer.append({"kind": np.array([1, 2], np.uint16), "site": np.array([2, 1], np.uint32)})
        writer.write_names(Names(sites={3: (0, 1, 1)}))
    file = TraceFile(path)
    assert file.names == replace(names, sites={**names.sites, 3: (0, 1, 1)})
    assert file.read()["site"].tolist() == [2, 1]
    told = read_trace(path)["names"]
    assert told[0]["modules"] == [[1, 0, "Net"], [2, 1, "layers.0"]]
    assert told[0]["codes"] == [[1, "train.py", "main", 3]]
    assert told[0]["frames"] == [[1, 0, 1, 7], [2, 1, 1, 9]]
    assert told[0]["sites"] == [[1, 2, 2, 1], [2, 1, 0, 3]]
    assert told[1]["sites"] == [[3, 0, 1, 1]] and "frames" not in told[1]


@given(
    columns=any_columns(max_size=25) | looping_columns(),
    piece=st.integers(1, 10),
    codec=st.sampled_from(CODECS),
)
def test_the_reader_written_from_the_page_agrees(
    path: Path, columns: Columns, piece: int, codec: int
) -> None:
    write_in_pieces(path, columns, piece, codec=codec)
    trace = read_trace(path)
    native = {"size" if name == "size_bytes" else name: v for name, v in columns.items()}
    for name, values in native.items():
        assert [event[name] for event in trace["events"]] == values.tolist()
    assert trace["metadata"][0] == RECORD
    assert trace["names"][0]["phases"] == [[1, 0, "forward"], [2, 1, "Schicht 2 ☃"]]
    assert trace["footer"] == {"reason": "end"}


@pytest.mark.parametrize("name", ["gpt2", "resnet"])
def test_the_reader_written_from_the_page_agrees_on_a_recorded_run(path: Path, name: str) -> None:
    source = recorded.records_of(np.load(recorded.DATA / f"{name}.npz"))
    columns = {column: source[column][:30_000].astype(COLUMNS[column]) for column in COLUMNS}
    with FileWriter(path, overwrite=True, events_per_keyframe=12_000) as writer:
        for start in range(0, 30_000, 7_000):
            writer.append(rows_of(columns, slice(start, start + 7_000)))
            writer.flush()
    assert_equal(TraceFile(path).read(), columns)
    trace = read_trace(path)
    assert trace["operations"] == {0, 1, 2, 3, 4, 5}
    for column, values in columns.items():
        key = "size" if column == "size_bytes" else column
        assert [event[key] for event in trace["events"]] == values.tolist()


@given(columns=any_columns(), resolution=st.integers(1, 2**63 - 1), codec=st.sampled_from(CODECS))
def test_time_is_rounded_towards_zero(
    path: Path, columns: Columns, resolution: int, codec: int
) -> None:
    with FileWriter(path, time_resolution_ns=resolution, overwrite=True, codec=codec) as writer:
        writer.append(columns)
    expected = [
        int(t) // resolution if t >= 0 else -(-int(t) // resolution) for t in columns["time_ns"]
    ]
    got = TraceFile(path).read()
    assert got["time_ns"].tolist() == [units * resolution for units in expected]
    assert_equal(got | {"time_ns": columns["time_ns"]}, columns)


def test_many_events_fill_several_chunks(tmp_path: Path) -> None:
    columns = training_columns(200_000)
    with FileWriter(tmp_path / "t.gmt") as writer:
        writer.append(columns)
    file = TraceFile(tmp_path / "t.gmt")
    assert file.chunks["count"].tolist() == [65536, 65536, 65536, 200_000 - 3 * 65536]
    assert file.chunks["first_sequence"].tolist() == [0, 65536, 131072, 196608]
    assert file.event_count == 200_000
    assert_equal(file.read(), columns)
    assert_equal(file.read(1, 3), rows_of(columns, slice(65536, 196608)))
    pieces = list(file.iter(2))
    assert [len(piece["kind"]) for piece in pieces] == [65536, 200_000 - 196608]
    assert file.chunks["first_time_ns"].tolist() == columns["time_ns"][::65536].tolist()
    with pytest.raises(ValueError, match="read-only"):
        file.chunks["count"] = 0


def test_a_file_without_events(tmp_path: Path) -> None:
    FileWriter(tmp_path / "t.gmt").close()
    file = TraceFile(tmp_path / "t.gmt")
    assert file.complete
    assert len(file.chunks) == 0
    columns = file.read()
    assert {name: values.dtype for name, values in columns.items()} == COLUMNS
    assert all(len(values) == 0 for values in columns.values())
    assert list(file.iter()) == []


def test_columns_left_out_are_zero(tmp_path: Path) -> None:
    with FileWriter(tmp_path / "t.gmt") as writer:
        writer.append({"kind": [Kind.ALLOC, Kind.FREE], "size_bytes": [512, 0]})
    columns = TraceFile(tmp_path / "t.gmt").read()
    assert columns["size_bytes"].tolist() == [512, 0]
    assert columns["device"].tolist() == [0, 0]


def test_run_record_is_merged_one_level_deep(tmp_path: Path) -> None:
    with FileWriter(tmp_path / "t.gmt") as writer:
        writer.write_metadata({"a": 1, "torch": {"version": "2.11.0", "cuda": "13.0"}, "b": [1]})
        writer.write_metadata({"a": 2, "torch": {"cuda": None}, "b": [2], "c": {"d": 1}})
        writer.write_names(Names(strings={1: "one", 2: "two"}))
        writer.write_names(Names(strings={2: "zwei"}))
    file = TraceFile(tmp_path / "t.gmt")
    assert file.run_record == {
        "a": 2,
        "torch": {"version": "2.11.0", "cuda": None},
        "b": [2],
        "c": {"d": 1},
    }
    assert file.names.strings == {1: "one", 2: "zwei"}


def test_a_chunk_number_out_of_range(tmp_path: Path) -> None:
    write_in_pieces(tmp_path / "t.gmt", training_columns(30), 10)
    file = TraceFile(tmp_path / "t.gmt")
    for first, last in [(0, 4), (-1, 2), (2, 1)]:
        with pytest.raises(IndexError, match=f"chunks {first} to {last} of 3"):
            file.read(first, last)


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"kind": [1], "size": [1]}, ValueError, "no such columns: size"),
        ({"size_bytes": [1]}, ValueError, "'kind' is needed"),
        ({"kind": [70000]}, ValueError, "'kind' holds a value that does not fit uint16"),
        ({"kind": [1], "address": [-1]}, ValueError, "does not fit uint64"),
        ({"kind": [1], "time_ns": np.array([2**63], np.uint64)}, ValueError, "does not fit int64"),
        ({"kind": [1], "time_ns": [0.5]}, TypeError, "must hold integers"),
        ({"kind": [1], "time_ns": [1, 2]}, ValueError, "wrong length"),
        ({"kind": [[1]]}, ValueError, "one dimension"),
    ],
)
def test_columns_that_no_trace_can_hold(
    tmp_path: Path, columns: Columns, error: type[Exception], message: str
) -> None:
    writer = FileWriter(tmp_path / "t.gmt")
    with pytest.raises(error, match=message):
        writer.append(columns)


def test_values_beside_the_dtype_are_converted(tmp_path: Path) -> None:
    with FileWriter(tmp_path / "t.gmt") as writer:
        writer.append(
            {
                "kind": np.array([1, 2], np.int64)[::-1],
                "address": [5, 0],
                "device": np.array([-1, 3], np.int32),
            }
        )
    columns = TraceFile(tmp_path / "t.gmt").read()
    assert columns["kind"].tolist() == [2, 1]
    assert columns["address"].tolist() == [5, 0]
    assert columns["device"].tolist() == [-1, 3]
