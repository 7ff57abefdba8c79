"""GIVEN an allocator in a known state, WHEN its fragmentation is found, THEN it is that."""

from __future__ import annotations

import json
from pathlib import Path

import fragmented
import numpy as np
import pytest
from fragmented import GIB
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_allocator import SlowAllocator, runs
from synthetic import MIB

from gpumemtrace.analysis.births import find_births
from gpumemtrace.analysis.cached_series import find_cached
from gpumemtrace.analysis.fragmentation import (
    find_fragmentation,
    fragmentation_index,
    unusable_share,
)
from gpumemtrace.analysis.fragmentation_wording import headline
from gpumemtrace.analysis.segments import FREE_CAUSES, find_segments
from gpumemtrace.analysis.serving import largest_request, serve
from gpumemtrace.cli.main import main
from gpumemtrace.schema import Kind
from gpumemtrace.trace import Trace


def test_ten_free_blocks_do_not_hold_one_of_five() -> None:
    state = find_segments(fragmented.ten_free_blocks().trace())
    assert fragmentation_index(state) == pytest.approx(0.9)
    assert unusable_share(state, 500 * MIB) == 1.0
    assert unusable_share(state, 100 * MIB) == 0.0
    assert largest_request(state).cached_bytes == 100 * MIB
    assert serve(state, 500 * MIB, device_free_bytes=499 * MIB).outcome == "fails"
    assert serve(state, 500 * MIB, device_free_bytes=500 * MIB).outcome == "new_segment"
    assert serve(state, 500 * MIB).outcome == "unknown"
    outcome = serve(state, 100 * MIB, device_free_bytes=0)
    assert outcome.outcome == "cached"
    assert outcome.cached_bytes == 1000 * MIB
    assert outcome.largest_cached_bytes == 100 * MIB
    assert outcome.releasable_segments == 0


@pytest.mark.parametrize("make", [fragmented.interleaved, fragmented.idle, fragmented.other_stream])
def test_each_cause_is_told_from_the_others(make) -> None:
    builder, expected = make()
    state = find_segments(builder.trace())
    assert state.known
    for cause in FREE_CAUSES:
        rest = 20 * MIB if cause == "interleaved" else 0  # of the last segment
        assert state.free_bytes[cause] == pytest.approx(expected.get(cause, 0), rel=0.01, abs=rest)


def test_what_a_flush_would_make_room_for() -> None:
    state = find_segments(fragmented.idle()[0].trace())
    total = sum((20 + 2 * i) * MIB for i in range(20))
    assert state.releasable_bytes == total and state.releasable_segments == 20
    largest = largest_request(state, device_free_bytes=31 * MIB)
    assert largest.cached_bytes == largest.with_device_bytes == 58 * MIB
    assert largest.after_flush_bytes == total + 30 * MIB  # segments are multiples of 2 MiB
    assert serve(state, 100 * MIB, device_free_bytes=0).outcome == "after_flush"
    assert serve(state, total + 2 * MIB, device_free_bytes=0).outcome == "fails"


@pytest.mark.parametrize(("size", "least"), [(1, 2), (MIB, 2), (MIB + 1, 20), (10 * MIB + 1, 12)])
def test_new_segments_have_a_least_size(size: int, least: int) -> None:
    state = find_segments(SlowAllocator().trace.trace())
    assert serve(state, size, device_free_bytes=least * MIB).outcome == "new_segment"
    assert serve(state, size, device_free_bytes=least * MIB - 1).outcome == "fails"


def test_an_expandable_segment_grows_at_its_end() -> None:
    builder = SlowAllocator().trace
    builder.add(Kind.SEGMENT_MAP, address=1 << 40, size_bytes=60 * MIB)
    builder.alloc(1 << 40, 15 * MIB).stats(0, 15 * MIB, 15 * MIB, 60 * MIB)
    state = find_segments(builder.trace())
    assert state.free_bytes["idle"] == 40 * MIB and state.free_bytes["interleaved"] == 5 * MIB
    largest = largest_request(state, device_free_bytes=39 * MIB)
    assert largest.cached_bytes == 45 * MIB
    assert largest.with_device_bytes == 65 * MIB  # one page of 20 MiB more
    assert serve(state, 65 * MIB, device_free_bytes=39 * MIB).outcome == "new_segment"
    assert serve(state, 66 * MIB, device_free_bytes=39 * MIB).outcome == "fails"


def test_eval_finds_less_and_less_room() -> None:
    builder, truth = fragmented.train_and_eval()
    trace = builder.trace(batch_records=17)
    found = find_fragmentation(trace)
    eval_phase = trace.phase_names.index("eval")
    at_eval = found.curve.phase == eval_phase
    assert found.curve.cached[at_eval].tolist() == truth
    assert truth[0] > 900 * MIB and min(truth) < 500 * MIB
    (need,) = [need for need in found.needs if need.phase == "eval"]
    assert need.largest_request_bytes == 500 * MIB
    assert need.entries == len(truth)
    assert need.largest_first_bytes == truth[0]
    crossing = next(i for i, size in enumerate(truth) if size < 500 * MIB)
    assert need.first_miss_step == crossing
    assert need.misses == sum(size < 500 * MIB for size in truth)
    assert need.first_fail_step is None
    # On a device that is full, that request is the one that fails.
    full, _ = fragmented.train_and_eval(capacity=1600 * MIB)
    (need,) = [need for need in find_fragmentation(full.trace()).needs if need.phase == "eval"]
    assert need.first_fail_step == crossing


def test_what_pins_a_segment_and_where_it_was_born() -> None:
    builder, _ = fragmented.train_and_eval(4)
    found = find_fragmentation(builder.trace(), step=3)
    assert found.state.step == 3
    segment = found.pinned[0]
    assert segment.block_count == 4
    assert segment.free_bytes == (1000 - 4 * 3) * MIB
    oldest = segment.blocks[0]
    assert (oldest.size_bytes, oldest.step, oldest.phase) == (3 * MIB, 0, "train")
    assert oldest.age_steps == 3 and oldest.thread == 1
    assert [block.step for block in segment.blocks] == [0, 1, 2]


@given(runs(), st.integers(1, 12), st.integers(1, 30))
@settings(max_examples=60)
def test_the_series_is_exact_and_holds_every_maximum(run, columns, batch_records) -> None:
    allocator, seen = run
    trace = allocator.trace.trace(batch_records=batch_records)
    if not seen or trace.active_devices == ():
        return
    series = find_cached(trace, device=0, columns=columns)
    free = np.sum(list(series.free.values()), axis=0) if len(series) else np.zeros(0, np.int64)
    assert (free + series.active == series.reserved).all()
    states = [find_segments(trace, record=int(record)) for record in series.record]
    assert [state.cached_bytes for state in states] == series.cached.tolist()
    assert [state.free_bytes for state in states] == [
        {cause: int(series.free[cause][i]) for cause in FREE_CAUSES} for i in range(len(series))
    ]
    everything = [find_segments(trace, record=i) for i in range(len(allocator.trace.rows))]
    mine = [state.cached_bytes for state in everything if state.known]
    assert series.cached.max(initial=0) == max(mine, default=0)
    stuck = [s.cached_bytes - s.free_bytes["idle"] for s in everything if s.known]
    if max(stuck, default=0):
        assert int(series.record[series.worst]) == next(
            s.record
            for s in everything
            if s.known and s.record >= 0 and s.cached_bytes - s.free_bytes["idle"] == max(stuck)
        )


@given(runs(), st.lists(st.integers(0, 30), max_size=8))
@settings(max_examples=40)
def test_births_are_those_of_the_records(run, wanted) -> None:
    allocator, _ = run
    rows = [row for row in allocator.trace.rows if row["kind"] == Kind.ALLOC]
    wanted = [number for number in wanted if number < len(rows)]
    births = find_births(allocator.trace.trace(batch_records=3), wanted)
    assert births.time_ns.tolist() == [rows[number]["time_ns"] for number in wanted]


def test_a_trace_without_segments_says_not_known(tmp_path: Path, capsys) -> None:
    columns = {"time_ns": [0, 1], "kind": [1, 2], "address": [512, 512], "size_bytes": [100, 0]}
    columns |= {"stream": [0, 0], "device": [0, 0], "thread": [1, 1]}
    trace = Trace.from_events(columns)
    found = find_fragmentation(trace)
    assert not found.known and found.index is None and found.largest == ()
    assert "not known" in headline(found)
    trace.save(tmp_path / "t.gmt")
    assert main(["fragmentation", str(tmp_path / "t.gmt")]) == 0
    assert "not known" in capsys.readouterr().out


def test_command(tmp_path: Path, capsys) -> None:
    path = str(tmp_path / "t.gmt")
    fragmented.train_and_eval()[0].trace().save(path)
    assert main(["fragmentation", path]) == 0
    out = capsys.readouterr().out
    assert out.startswith("cuda:0: ")
    assert "pinned by" in out and "first in step" in out and "train, step" in out
    assert main(["fragmentation", "--json", path, "--step", "5", "--top", "1"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["at"]["step"] == 5 and len(result["pinned"]) == 1
    assert result["reserved_bytes"] == result["allocated_bytes"] + result["cached_bytes"]
    assert sum(result["free_bytes"].values()) == result["cached_bytes"]
    assert main(["fragmentation", path, "--step", "99"]) == 1
    assert "step 99: the trace has steps 0 to" in capsys.readouterr().err
    assert main(["fragmentation", path, "--device", "3"]) == 1
    assert "device 3 has no allocations: those with some are 0" in capsys.readouterr().err


def test_two_instants_are_an_error() -> None:
    trace = fragmented.idle()[0].trace()
    with pytest.raises(ValueError, match="one of event, step and time_ns"):
        find_fragmentation(trace, step=1, event=3)


def test_nothing_cached() -> None:
    allocator = SlowAllocator()
    allocator.alloc(2 * GIB, 0)
    found = find_fragmentation(allocator.trace.trace())
    assert found.index is None and found.pinned == ()
    assert headline(found).startswith("cuda:0: nothing is cached in step 0")
