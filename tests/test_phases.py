"""GIVEN phases, nested and on several threads, THEN the figures of each equal a slow reference."""

from __future__ import annotations

import numpy as np
import pytest
import recorded
from hypothesis import given
from hypothesis import strategies as st
from synthetic import PHASE_NAMES, TraceBuilder, event_columns

from gpumemtrace.analysis.phases import _Rows, find_phases
from gpumemtrace.schema import Kind
from gpumemtrace.trace import Trace


def by_name(trace: Trace, device: int = 0):
    found = next(d for d in find_phases(trace) if d.device == device)
    return (
        {use.name: use for use in found.phases},
        {"/".join(u.path): u for u in found.paths},
        found,
    )


def test_nested_phases_inclusive_and_exclusive():
    """C54: train > eval > train, with a peak in each."""
    builder = TraceBuilder().phase("train").alloc(512, 1000).phase("train/eval")
    builder.alloc(2048, 5000).free(2048).phase("train/eval/train").alloc(4096, 2000)
    builder.phase("train/eval", entered=False).free(4096).phase("train", entered=False)
    builder.phase("", entered=False).alloc(1 << 20, 90_000)
    names, paths, found = by_name(builder.trace())
    assert [paths[p].peak["requested"] for p in ("train", "train/eval", "train/eval/train")] == [
        6000,
        6000,
        3000,
    ]
    assert [paths[p].self_peak["requested"] for p in ("train", "train/eval")] == [1000, 6000]
    assert names["train"].count == 2
    assert names["train"].self_peak["requested"] == 3000
    assert names["train"].peak["requested"] == 6000
    assert names["eval"].self_net_allocated_bytes == -2048
    assert names["eval"].net_allocated_bytes == 0
    assert found.outside.peak["requested"] == 91_000
    # 1 us a record: the whole stretch of train lasts 10 of them, the innermost one 2.
    assert paths["train"].time_s == pytest.approx(10e-6)
    assert paths["train/eval/train"].time_s == pytest.approx(2e-6)


def test_the_value_with_which_a_phase_begins_counts():
    builder = TraceBuilder().phase("forward").alloc(512, 1000).phase("optimizer").free(512)
    names, _, _ = by_name(builder.trace())
    assert names["optimizer"].peak["requested"] == 1000
    assert names["optimizer"].net_allocated_bytes == -1024


def test_two_devices_have_peaks_of_their_own():
    """C55."""
    builder = TraceBuilder().phase("train").alloc(512, 1000, device=0).phase("train/eval")
    builder.alloc(1 << 30, 7000, device=1).phase("train", entered=False)
    names, _, _ = by_name(builder.trace(), device=0)
    assert names["eval"].peak["requested"] == 1000
    names, _, _ = by_name(builder.trace(), device=1)
    assert names["train"].peak["requested"] == 7000
    assert names["train"].self_peak["requested"] == 7000  # after eval: the block is still there


def test_a_prefetch_thread_stays_in_its_phase():
    builder = TraceBuilder().phase("data", thread=3).phase("backward", thread=1).step(1)
    builder.alloc(512, 100, thread=3).alloc(1024, 200, thread=9)
    names, _, _ = by_name(builder.trace())
    assert names["data"].net_allocated_bytes == 512
    assert names["backward"].net_allocated_bytes == 512  # thread 9 is autograd's


def test_samples_of_the_device_by_phase():
    builder = TraceBuilder().phase("a").alloc(512, 1).add(Kind.DEVICE_USED, size_bytes=70)
    builder.phase("b").add(Kind.DEVICE_USED, size_bytes=50).phase("c").alloc(1024, 1)
    names, _, _ = by_name(builder.trace())
    assert [names[n].peak["device_used"] for n in "abc"] == [70, 70, 50]


def slow_phases(trace: Trace, device: int):
    """Peak and net of requested bytes by leaf name, record by record."""
    spans = list(trace.phases)
    live, total, series = {}, 0, []
    for event in range(len(trace)):
        key = (int(trace.device[event]), int(trace.address[event]))
        before = total
        if key[0] == device:
            total -= live.pop(key, 0)
            if trace.kind[event] == 1:
                live[key] = int(trace.size_bytes[event])
                total += live[key]
        series.append((before, total))
    peak = {}
    for span in spans:
        inside = series[span.first_event : span.end_event]
        if span.first_event < len(series):
            begins = series[span.first_event][0]
        else:
            begins = series[-1][1] if series else 0
        values = [begins, *(after for _, after in inside)]
        for name in set(span.path):
            peak[name] = max(peak.get(name, 0), *values)
    return peak


@given(event_columns(), st.integers(1, 20))
def test_peaks_equal_the_slow_ones(columns, batch_records):
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES)
    object.__setattr__(trace._source, "batch_records", batch_records)
    for device in find_phases(trace):
        expected = slow_phases(trace, device.device)
        got = {use.name: use.peak["requested"] for use in device.phases}
        assert got == {name: expected.get(name) for name in PHASE_NAMES}


@given(event_columns())
def test_what_phases_leave_adds_up(columns):
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES)
    for device in find_phases(trace):
        left = sum(use.self_net_allocated_bytes for use in (*device.paths, device.outside))
        lifetimes = trace.lifetimes()
        is_mine = trace.device[lifetimes.birth_index] == device.device
        alive = is_mine & (lifetimes.death_index < 0)
        assert left == sum(-(-size // 512) * 512 for size in lifetimes.size_bytes[alive].tolist())


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple), max_size=12))
def test_rows_of_paths_are_those_found_by_looking_at_each(paths):
    rows = _Rows(tuple(paths))
    numbered = list(enumerate(paths, start=1))
    for path in paths:
        name = path[-1]
        assert rows.innermost[name] == [row for row, other in numbered if other[-1] == name]
        assert rows.inside_name[name] == [row for row, other in numbered if name in other]
        inside = [row for row, other in numbered if other[: len(path)] == path]
        assert rows.inside_path[rows.row_of[path]] == inside


def test_a_slice_knows_the_phases_that_were_open():
    builder = TraceBuilder().phase("train").alloc(512, 100).step(1).alloc(1024, 50).step(2)
    part = builder.trace().slice(steps=(1, 2))
    assert [(span.path, span.entered) for span in part.phases] == [(("train",), False)]
    names, _, _ = by_name(part)
    assert names["train"].peak["requested"] == 150
    assert names["train"].count == 0


def test_a_recorded_run():
    trace, truth = recorded.load("gpt2")
    names, _, found = by_name(trace)
    assert {name: use.count for name, use in names.items()} == {
        "init": 1,
        "data": 60,
        "forward": 60,
        "backward": 60,
        "optimizer": 60,
        "zero_grad": 60,
    }
    # Backward sets the peak; what is in use at the end is what the phases left.
    assert names["backward"].peak["allocated"] == truth["peak"]["allocated_bytes.all.peak"]
    left = sum(use.net_allocated_bytes for use in found.phases)
    assert left == truth["stats_per_step"][-1][1]
    assert np.isclose(sum(use.time_s for use in found.phases), trace.duration_ns / 1e9)
