"""GIVEN traces, WHEN exported as tables, THEN rows are what a slow walk over the records says."""

from __future__ import annotations

import csv
import itertools
import sys

import numpy as np
import pytest
import recorded
from hypothesis import given
from hypothesis import strategies as st
from synthetic import PHASE_NAMES, TraceBuilder, event_columns

from gpumemtrace.analysis.lines import LineStream
from gpumemtrace.cli.main import main
from gpumemtrace.errors import GpuMemTraceError
from gpumemtrace.export.formats import ExportOptions
from gpumemtrace.export.tables import concatenated, read_table
from gpumemtrace.records import MemorySource
from gpumemtrace.trace import Trace


def rows_of(trace, table, **options):
    found = read_table(trace, ExportOptions(table=table, **options))
    arrays = concatenated(tuple(found.columns), found.parts)
    return [
        dict(zip(arrays, row, strict=True))
        for row in zip(*(array.tolist() for array in arrays.values()), strict=True)
    ]


def slow_allocations(columns):
    """The allocations by a walk over the events, one at a time; addresses name their device."""
    live, ended = {}, []
    for i, (kind, address) in enumerate(
        zip(columns["kind"].tolist(), columns["address"].tolist(), strict=True)
    ):
        if address in live and (kind == 2 or live[address][1] == columns["device"][i]):
            ended.append((live.pop(address)[0], i))
        if kind == 1:
            live[address] = i, columns["device"][i]
    return ended + [(birth, -1) for birth, _ in live.values()]


def in_small_batches(trace, batch_records):
    source = trace._source
    return Trace(MemorySource(source.records, source.names, batch_records=batch_records))


@given(event_columns(), st.integers(1, 9))
def test_allocations(columns, batch_records):
    # Of one device, where addresses can't be taken for those of another.
    columns = columns | {"device": np.zeros_like(columns["device"])}
    trace = in_small_batches(Trace.from_events(columns, phase_names=PHASE_NAMES), batch_records)
    rows = rows_of(trace, "allocations")
    pairs = [(row["birth_event"], row["death_event"]) for row in rows]
    assert sorted(pairs) == sorted(slow_allocations(columns))
    for row in rows:
        birth, death = row["birth_event"], row["death_event"]
        assert row["size_bytes"] == columns["size_bytes"][birth]
        assert row["birth_time_ns"] == columns["time_ns"][birth]
        assert row["birth_phase"] == columns["phase"][birth]
        assert row["death_time_ns"] == (columns["time_ns"][death] if death >= 0 else -1)
        assert row["death_thread"] == (columns["thread"][death] if death >= 0 else -1)


@given(event_columns(), st.integers(1, 9))
def test_events(columns, batch_records):
    trace = in_small_batches(Trace.from_events(columns, phase_names=PHASE_NAMES), batch_records)
    rows = rows_of(trace, "events")
    assert len(rows) == len(columns["kind"])
    assert [row["kind"] + 1 for row in rows] == columns["kind"].tolist()
    freed = [row["size_bytes"] for row in rows if row["kind"] == 1]
    asked = [row["size_bytes"] for row in rows if row["kind"] == 0]
    assert asked == columns["size_bytes"][columns["kind"] == 1].tolist()
    assert all(size >= 0 for size in freed)
    stream = LineStream(trace)
    line = [lines.values["requested"][batch.is_event].tolist() for batch, lines in stream]
    assert [row["requested_bytes"] for row in rows] == list(itertools.chain(*line))
    assert all(row["reserved_bytes"] == -1 for row in rows)  # never guessed


def test_the_sizes_of_frees(tmp_path):
    trace = recorded.load("gpt2")[0]
    rows = read_table(trace, ExportOptions())
    events = concatenated(tuple(rows.columns), rows.parts)
    lifetimes = trace.lifetimes()
    dead = lifetimes.death_index >= 0
    assert (events["size_bytes"][lifetimes.death_index[dead]] == lifetimes.size_bytes[dead]).all()


def test_a_slice_has_the_blocks_that_lived_in_it():
    builder = TraceBuilder().alloc(512, 1).alloc(1024, 2).free(512).step(1)
    builder.alloc(2048, 3).free(1024).step(2).free(2048).step(3)
    rows = rows_of(builder.trace().slice(steps=(1, 2)), "allocations")
    assert [
        (r["size_bytes"], r["birth_event"], r["birth_step"], r["death_event"]) for r in rows
    ] == [
        (2, -1, 0, 1),
        (3, 0, 1, -1),
    ]
    assert [row["size_bytes"] for row in rows_of(builder.trace(), "allocations")] == [1, 2, 3]


def test_only_some_devices_and_until_a_time():
    builder = TraceBuilder().alloc(512, 1).alloc(1024, 2, device=1).free(512).alloc(512, 3)
    trace = builder.trace()
    assert [r["size_bytes"] for r in rows_of(trace, "events", devices=frozenset({1}))] == [2]
    rows = rows_of(trace, "allocations", until_ns=2000)
    assert [(r["size_bytes"], r["death_event"]) for r in rows] == [(1, -1), (2, -1)]


def test_csv(tmp_path, capsys):
    builder = TraceBuilder().phase("forward").alloc(512, 100).stats(100, 512, 512, 2048).step(1)
    builder.phase("").free(512).trace().save(tmp_path / "a.gmt")
    path = str(tmp_path / "a.gmt")
    assert main(["export", path, "--to", "csv"]) == 0
    assert f"Wrote {tmp_path / 'a.csv'}: 2 events" in capsys.readouterr().out
    with (tmp_path / "a.csv").open(newline="") as file:
        alloc, free = csv.DictReader(file)
    assert (alloc["kind"], alloc["phase"], alloc["size_bytes"]) == ("alloc", "forward", "100")
    assert (free["kind"], free["phase"], free["size_bytes"]) == ("free", "", "100")
    assert (free["step"], free["allocated_bytes"], free["reserved_bytes"]) == ("1", "0", "2048")
    assert main(["export", path, "--to", "csv"]) == 1
    assert "is there already" in capsys.readouterr().err
    assert main(["export", path, "--to", "csv", "-qf", "--table", "allocations"]) == 0
    assert capsys.readouterr().out == ""
    with (tmp_path / "a.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["birth_phase"], row["death_step"], row["category"]) == (
        "forward",
        "1",
        "activation",
    )


def test_the_trace_is_not_overwritten(tmp_path, capsys):
    TraceBuilder().alloc(512, 1).trace().save(tmp_path / "a.gmt")
    path = str(tmp_path / "a.gmt")
    assert main(["export", path, "--to", "csv", "-f", "-o", path]) == 1
    assert "is the trace itself" in capsys.readouterr().err
    assert main(["export", path, "--to", "csv", "--steps", "4:5"]) == 1
    assert "no step in 4:5" in capsys.readouterr().err


def test_bytes_live_at_a_time_by_phase_in_one_statement(tmp_path):
    """C71: live bytes by phase at the peak, from the rows alone, equal the line there."""
    import sqlite3

    trace = recorded.load("gpt2")[0]
    frame = trace.to_pandas("allocations")
    database = sqlite3.connect(":memory:")
    for name in ("birth_phase", "death_phase", "category", "rule"):
        frame[name] = frame[name].astype(object).where(frame[name].notna(), None)
    frame["address"] = frame["address"].astype("int64")
    frame["stream"] = frame["stream"].astype("int64")
    frame.to_sql("allocations", database)
    events = trace.to_pandas("events")
    peak = events["requested_bytes"].idxmax()
    query = """
        SELECT birth_phase, SUM(size_bytes) FROM allocations
        WHERE birth_event <= ? AND (death_event IS NULL OR death_event > ?) GROUP BY birth_phase
    """
    by_phase = dict(database.execute(query, (int(peak), int(peak))).fetchall())
    assert sum(by_phase.values()) == events["requested_bytes"][peak]
    assert by_phase["backward"] > 0 and by_phase["init"] > 0


def test_arrow_pandas_and_parquet_say_the_same(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    trace = recorded.load("resnet")[0]
    for table in ("events", "allocations"):
        arrow, frame = trace.to_arrow(table), trace.to_pandas(table)
        assert arrow.num_rows == len(frame) == len(rows_of(trace, table))
        path = tmp_path / f"{table}.parquet"
        trace.save(tmp_path / "a.gmt", force=True)
        arguments = ["export", "-q", str(tmp_path / "a.gmt"), "--to", "parquet", "-o", str(path)]
        assert main([*arguments, "--table", table]) == 0
        read = parquet.read_table(path)
        assert read.column_names == arrow.column_names == list(frame)
        for name in read.column_names:
            assert read[name].to_pylist() == arrow[name].to_pylist(), name
            values = frame[name].astype(object).where(frame[name].notna(), None)
            assert values.tolist() == arrow[name].to_pylist(), name
        assert b"gpumemtrace.run_record" in read.schema.metadata


@pytest.mark.parametrize(
    ("package", "extra", "call"),
    [
        ("pandas", "pandas", lambda trace: trace.to_pandas()),
        ("pyarrow", "parquet", lambda trace: trace.to_arrow()),
    ],
)
def test_a_missing_package_says_what_to_type(package, extra, call, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(GpuMemTraceError, match=rf"pip install 'gpumemtrace\[{extra}\]'"):
        call(TraceBuilder().alloc(512, 1).trace())
