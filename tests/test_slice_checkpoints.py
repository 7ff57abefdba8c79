"""GIVEN a slice, WHEN reading begins shortly before it, THEN all is as if the whole were read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_allocator import runs
from synthetic import PHASE_NAMES, TraceBuilder, event_columns

import gpumemtrace
from gpumemtrace.analysis.lines import ALLOCATOR_LINES, LineStream
from gpumemtrace.records import FileSource
from gpumemtrace.schema import Kind, PhaseFlags
from gpumemtrace.trace import Trace
from gpumemtrace.trace_file import FileWriter, Names, TraceFile


def all_of(part: Trace) -> list[Any]:
    """Everything that an analysis of the lines sees of a slice, and what it asks the stream."""
    stream = LineStream(part)
    seen: list[Any] = []
    for batch, lines in stream:
        for i in range(len(batch)):
            row = {name: column[i] for name, column in batch.raw.items()}
            row |= {"step": batch.step[i], "phase": batch.phase[i], "path": batch.phase_path[i]}
            row |= {"record": batch.first_record + i, "certain": not lines.uncertain[i]}
            row |= {name: lines.values[name][i] for name in ALLOCATOR_LINES}
            seen.append({name: int(value) for name, value in row.items()})
    marks = {name: column.tolist() for name, column in part.marks.records.items()}
    seen += [stream.initial, stream.final, stream.anomalies, stream.anomaly_counts]
    return [*seen, stream.live_blocks, stream.unseen_allocs, marks, part.marks.counts.tolist()]


def from_the_beginning(trace: Trace, **window: Any) -> Trace:
    """The same slice, for which everything before it is read by every analysis."""
    part = trace.slice(**window)
    part._part._checkpoint = part._part.beginning
    return part


def assert_alike(trace: Trace, **window: Any) -> Trace:
    try:
        expected = all_of(from_the_beginning(trace, **window))
    except ValueError:
        with pytest.raises(ValueError, match=r"step|time|record"):
            trace.slice(**window)
        return trace
    part = trace.slice(**window)
    assert all_of(part) == expected
    assert all_of(part) == expected  # what was carried in is still as it was
    with_marks = Trace(trace._source)
    assert with_marks.marks  # the window is found without reading on: the checkpoint comes later
    assert all_of(with_marks.slice(**window)) == expected
    return part


def in_batches(trace: Trace, batch_records: int) -> Trace:
    object.__setattr__(trace._source, "batch_records", batch_records)
    return trace


@given(event_columns(min_events=4), st.integers(1, 9), st.integers(0, 20), st.integers(1, 20))
@settings(max_examples=60)
def test_a_slice_of_steps(columns, batch_records, first, steps):
    trace = in_batches(Trace.from_events(columns, phase_names=PHASE_NAMES), batch_records)
    part = assert_alike(trace, steps=(first, first + steps))
    assert_alike(part, steps=(first + 1, first + steps))


@given(event_columns(min_events=4), st.integers(1, 9), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=60)
def test_a_slice_of_time(columns, batch_records, begin, end):
    trace = in_batches(Trace.from_events(columns, phase_names=PHASE_NAMES), batch_records)
    first_ns, last_ns = trace.time_span_ns
    start_ns = int(first_ns + begin * (last_ns - first_ns))
    assert_alike(trace, time_ns=(start_ns, start_ns + 1 + int(end * last_ns)))


@given(runs(), st.integers(1, 9), st.floats(0, 1))
@settings(max_examples=60)
def test_with_segments_counters_and_waiting_blocks(run, batch_records, begin):
    trace = in_batches(run[0].trace.trace(), batch_records)
    if not trace.record_count:
        return
    first_ns, last_ns = trace.time_span_ns
    start_ns = int(first_ns + begin * (last_ns - first_ns))
    assert_alike(trace, time_ns=(start_ns, last_ns + 1))


def test_phases_that_were_open_and_steps_that_go_back():
    builder = TraceBuilder()
    for number in (1, 2, 3, 1, 2, 3, 4, 5):
        builder.phase("train").phase("train/forward", thread=2).alloc(512 * number, 100 + number)
        builder.phase("eval", thread=3, flags=PhaseFlags.PROCESS_WIDE).alloc(9000 * number, 1)
        builder.add(Kind.GAP, address=1, device=-1)
        builder.phase("", thread=3).free(512 * number, thread=2).step(number)
    trace = in_batches(builder.trace(), 5)
    for first in range(5):
        assert_alike(trace, steps=(first, first + 2))
        assert_alike(trace, steps=(first, 9))


@pytest.fixture
def file_with_keyframes(tmp_path, monkeypatch) -> Path:
    """100 steps of 40 events, in chunks of 40, of which every fifth is a keyframe."""
    monkeypatch.setattr(FileSource, "BATCH_RECORDS", 100)
    path = tmp_path / "keyframes.gmt"
    builder = TraceBuilder()
    for step in range(100):
        builder.phase("forward")
        for i in range(20):
            builder.alloc(4096 * (i + 1), 1000 * step + i)
        for i in range(step % 3, 20):
            builder.free(4096 * (i + 1))
        builder.step(step + 1)
    records = builder.trace()._source.records
    with FileWriter(path, codec=2, events_per_keyframe=200) as writer:
        writer.write_names(Names(phases=builder.phases))
        for start in range(0, len(records["kind"]), 40):
            rows = {name: column[start : start + 40] for name, column in records.items()}
            writer.append(rows | {"size_bytes": rows["size_bytes"].view(np.uint64)})
            writer.flush()
    return path


def test_in_a_file_and_only_the_end_of_it_is_read_again(file_with_keyframes, monkeypatch):
    trace = gpumemtrace.open(file_with_keyframes)
    part = assert_alike(trace, steps=(90, 92))
    read: list[int] = []
    native = TraceFile.read

    def counted(self: TraceFile, first: int, last: int) -> Any:
        read.extend(range(first, last))
        return native(self, first, last)

    monkeypatch.setattr(TraceFile, "read", counted)
    whole = len(FileSource(file_with_keyframes)._file.chunks)
    assert len(part) == 80 - (90 % 3 + 91 % 3)
    list(LineStream(part))
    assert min(read) > 0.85 * whole


def test_in_a_file_with_a_damaged_chunk_before_it(file_with_keyframes):
    chunk = TraceFile(file_with_keyframes).chunks[40]
    damaged = bytearray(file_with_keyframes.read_bytes())
    damaged[int(chunk["offset"] + chunk["stored_bytes"]) - 1] ^= 1
    file_with_keyframes.write_bytes(damaged)
    part = assert_alike(gpumemtrace.open(file_with_keyframes), steps=(90, 92))
    assert part.marks.records["record"][0] < 40 * 90  # a gap stands for the records of its keyframe
