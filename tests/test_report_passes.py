"""GIVEN analyses that share passes, THEN each finds what it finds alone, from two readings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import recorded
import scenarios
from fragmented import train_and_eval
from synthetic import MIB, TraceBuilder

from gpumemtrace.analysis.category_timeline import find_category_timeline
from gpumemtrace.analysis.fragmentation import find_fragmentation
from gpumemtrace.analysis.oom import find_oom
from gpumemtrace.analysis.peak_live_set import find_peak_live_set
from gpumemtrace.analysis.segment_map import find_segment_maps
from gpumemtrace.records import MemorySource, Records
from gpumemtrace.report.results import collect
from gpumemtrace.trace import Trace

TRACES = {
    "segments": lambda: train_and_eval()[0].trace(batch_records=97),
    "two devices": lambda: scenarios.two_devices().trace(batch_records=61),
    "failed": lambda: scenarios.died_of_oom().trace(batch_records=50),
    "lost": lambda: scenarios.lost_events().trace(batch_records=50),
    "a slice": lambda: train_and_eval()[0].trace(batch_records=97).slice(steps=(3, 7)),
    "one event": lambda: TraceBuilder().alloc(512, MIB).trace(),
    "nothing": lambda: TraceBuilder().trace(),
}


@pytest.mark.parametrize("name", TRACES)
def test_each_finds_what_it_finds_alone(name):
    trace = TRACES[name]()
    results = collect(trace, columns=100)
    devices = trace.active_devices
    alone = [find_fragmentation(trace, device=device) for device in devices]
    assert [f.to_dict() for f in results.fragmentations] == [f.to_dict() for f in alone]
    for found, expected in zip(results.fragmentations, alone, strict=True):
        assert np.array_equal(found.series.record, expected.series.record)
        assert np.array_equal(found.series.cached, expected.series.cached)
        worst = found.series.worst
        if worst is not None:
            assert found.state.record == found.series.record[worst]
            assert found.state.cached_bytes == found.series.cached[worst]
    peaks = [find_peak_live_set(trace, device=device) for device in devices]
    assert [p.to_dict() for p in results.peak_live_sets] == [p.to_dict() for p in peaks]
    for peak, expected_peak in zip(results.peak_live_sets, peaks, strict=True):
        assert np.array_equal(peak.blocks.alloc, expected_peak.blocks.alloc)
        assert np.array_equal(peak.blocks.category_id, expected_peak.blocks.category_id)
    maps = [one for one in find_segment_maps(trace) if len(one.time_ns)]
    for one, expected_map in zip(results.segment_maps, maps, strict=True):
        assert np.array_equal(one.use_percent, expected_map.use_percent)
        assert np.array_equal(one.time_ns, expected_map.time_ns)
    timelines = find_category_timeline(trace)
    for line, expected_line in zip(results.category_timelines, timelines, strict=True):
        assert np.array_equal(line.category_bytes, expected_line.category_bytes)
        assert np.array_equal(line.rest_bytes, expected_line.rest_bytes)
    assert results.oom.to_dict() == find_oom(trace).to_dict()


def test_a_report_reads_the_file_twice(monkeypatch):
    """But for a look at the beginning: who drives the steps."""
    trace = recorded.load("gpt2")[0]
    read = 0
    pieces = MemorySource.pieces

    def counted(self: MemorySource, first: int = 0) -> Iterator[Sequence[Records]]:
        nonlocal read
        for piece in pieces(self, first):
            read += sum(len(batch["kind"]) for batch in piece)
            yield piece

    monkeypatch.setattr(MemorySource, "pieces", counted)
    assert isinstance(trace, Trace)
    collect(trace, columns=100)
    (first_batch,) = next(iter(pieces(trace._source)))
    assert 2 * trace.record_count <= read <= 2 * trace.record_count + len(first_batch["kind"])
