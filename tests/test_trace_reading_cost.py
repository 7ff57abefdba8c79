"""Reading costs what the question needs: decoding runs ahead, a slice reads up to its end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import gpumemtrace
from gpumemtrace.analysis.timeline import build_timeline
from gpumemtrace.cli.main import main
from gpumemtrace.records import FileSource
from gpumemtrace.trace import Trace
from gpumemtrace.trace_file import TraceFile

STEPS, EVENTS_PER_STEP = 2000, 1000


@pytest.fixture(scope="module")
def long_trace(tmp_path_factory) -> Path:
    """2,000 steps of 500 pairs each: 31 chunks."""
    events = STEPS * EVENTS_PER_STEP
    number = np.arange(events)
    path = tmp_path_factory.mktemp("long") / "long.gmt"
    Trace.from_events(
        {
            "time_ns": number * 100,
            "kind": 1 + number % 2,
            "address": np.full(events, 512),
            "size_bytes": np.where(number % 2 == 0, 1024 + number // EVENTS_PER_STEP, 0),
            "stream": np.zeros(events, int),
            "device": np.zeros(events, int),
            "thread": np.ones(events, int),
            "step": number // EVENTS_PER_STEP,
        }
    ).save(path)
    return path


@pytest.fixture
def chunks_read(monkeypatch) -> list[int]:
    """The chunks that were decoded, in order."""
    read: list[int] = []
    native = TraceFile.read

    def counted(self: TraceFile, first: int, last: int) -> object:
        read.extend(range(first, last))
        return native(self, first, last)

    monkeypatch.setattr(TraceFile, "read", counted)
    return read


def test_a_slice_near_the_beginning_leaves_the_rest_of_the_file_alone(long_trace, chunks_read):
    trace = gpumemtrace.open(long_trace)
    part = trace.slice(steps=(100, 110))
    timeline = build_timeline(part)
    assert timeline.devices[0].peak.size_bytes == 1536
    # Slicing, then the two passes of the timeline; each may decode one batch ahead.
    whole = len(FileSource(long_trace)._file.chunks)
    assert len(set(chunks_read)) < whole / 2
    assert timeline.shown_records < 12_000 < timeline.all_records


def test_so_does_a_picture_of_it(long_trace, chunks_read, tmp_path):
    picture = tmp_path / "few.png"
    assert main(["plot", str(long_trace), "--steps", "100:110", "-o", str(picture)]) == 0
    assert len(set(chunks_read)) < len(FileSource(long_trace)._file.chunks) / 2


def test_two_readers_of_one_trace_do_not_disturb_each_other(long_trace):
    trace = gpumemtrace.open(long_trace)
    for batch, other in zip(trace.chunks(), trace.chunks(), strict=True):
        for name, column in batch.raw.items():
            assert np.array_equal(column, other.raw[name]), name


def test_several_threads_read_one_file_at_once(long_trace):
    file = TraceFile(long_trace)
    count = len(file.chunks)
    expected = [columns["time_ns"] for columns in file.iter()]

    def read_all(start: int) -> bool:
        order = [(start + 7 * i) % count for i in range(count)]  # 31 chunks: each once
        return all(
            np.array_equal(file.read(i, i + 1)["time_ns"], expected[i]) for i in order
        ) and all(
            np.array_equal(columns["time_ns"], expected[i]) for i, columns in enumerate(file.iter())
        )

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read_all, range(4)))


def test_what_goes_wrong_while_decoding_ahead_reaches_the_reader(long_trace, monkeypatch):
    source = FileSource(long_trace)
    batches = source.batches()
    next(batches)

    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(source._file, "read", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        list(batches)
