"""GIVEN any run of an allocator, WHEN its records are replayed, THEN its segments come out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_allocator import SlowAllocator, runs
from synthetic import MIB, PHASE_NAMES, TraceBuilder, event_columns

from gpumemtrace.analysis.segments import FREE_CAUSES, SegmentState, SegmentStream, find_segments
from gpumemtrace.schema import Kind, StatsCause
from gpumemtrace.trace import Trace


def rows_of(allocator: SlowAllocator) -> list[tuple]:
    return [
        (s.base, s.size, s.stream, s.is_small, s.pool, b.address, b.size, b.requested, b.state)
        for s in sorted(allocator.segments, key=lambda segment: segment.base)
        for b in s.blocks
    ]


def rows_of_state(state: SegmentState) -> list[tuple]:
    s, b = state.segments, state.blocks
    columns = (s.base, s.size_bytes, s.stream, s.is_small.astype(bool), s.pool_second)
    of_segment = [column[b.segment].tolist() for column in columns]
    of_block = [c.tolist() for c in (b.address, b.size_bytes, b.requested_bytes, b.state)]
    return list(zip(*of_segment, *of_block, strict=True))


@given(runs(), st.integers(1, 40))
def test_the_replay_is_the_allocator(run, batch_records):
    allocator, seen = run
    trace = allocator.trace.trace(batch_records=batch_records)
    stream = SegmentStream()
    got = [(batch, stream.feed_lines(batch)) for batch in trace.chunks()]
    for records, totals, causes in seen:
        if records == 0:
            continue
        batch, lines = next(
            (b, found)
            for b, found in got
            if b.first_record <= records - 1 < b.first_record + len(b)
        )
        row = records - 1 - batch.first_record
        if lines.device[row] < 0:
            continue
        assert {cause: int(lines.free[cause][row]) for cause in FREE_CAUSES} == causes
        assert lines.reserved[row] == totals["reserved"]
        assert lines.active[row] == totals["allocated"] + totals["pending"]
        # Before the first segment nothing says that segments are told of.
        assert lines.known[row] or allocator.trace.rows[0]["kind"] != Kind.SEGMENT_ALLOC
    for _, lines in got:
        mine = lines.device >= 0
        free = sum(lines.free.values())
        assert (lines.active + free == lines.reserved)[mine].all()
    if allocator.segments:
        state = stream.state(0)
        assert rows_of_state(state) == rows_of(allocator)
        blocks, lifetimes = state.blocks, trace.lifetimes()
        used = ~blocks.is_free
        assert (lifetimes.address[blocks.alloc[used]] == blocks.address[used]).all()
        for group in state.groups:
            mine = [
                b.size
                for s in allocator.segments
                for b in s.blocks
                if (s.stream, s.pool, s.is_small) == (group.stream, group.pool[1], group.is_small)
                and b.state == "free"
            ]
            assert group.largest_free_bytes == max(mine, default=0)
            assert group.free_bytes == sum(mine)


@given(runs(silent=True))
@settings(max_examples=60)
def test_what_a_flush_gave_back_is_inferred(run):
    allocator, _ = run
    state = find_segments(allocator.trace.trace())
    if allocator.segments:
        assert rows_of_state(state) == rows_of(allocator)
        assert state.known


@given(runs(), st.data())
@settings(max_examples=60)
def test_an_instant_is_the_trace_up_to_there(run, data):
    allocator, seen = run
    at = data.draw(st.sampled_from([n for n, *_ in seen if n] or [0]))
    if at:
        short = TraceBuilder(rows=allocator.trace.rows[:at])
        whole = allocator.trace.trace(batch_records=5)
        expected = rows_of_state(find_segments(short.trace()))
        assert rows_of_state(find_segments(whole, record=at - 1)) == expected
        time_ns = allocator.trace.rows[at - 1]["time_ns"]
        assert rows_of_state(find_segments(whole, time_ns=time_ns)) == expected


@given(event_columns(), st.integers(1, 30))
def test_plain_events_tell_of_no_segments(columns, batch_records):
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES)
    object.__setattr__(trace._source, "batch_records", batch_records)
    state = find_segments(trace)
    assert not state.known and not len(state.segments) and state.reserved_bytes == 0


BASE = 1 << 40


def expandable() -> TraceBuilder:
    """Three blocks of 10 MiB in 40 MiB; the middle one is free."""
    builder = TraceBuilder().add(Kind.SEGMENT_MAP, address=BASE, size_bytes=20 * MIB)
    builder.alloc(BASE, 10 * MIB).stats(0, 10 * MIB, 10 * MIB, 20 * MIB)
    builder.alloc(BASE + 10 * MIB, 10 * MIB)
    builder.add(Kind.SEGMENT_MAP, address=BASE + 20 * MIB, size_bytes=20 * MIB)
    builder.alloc(BASE + 20 * MIB, 10 * MIB).stats(0, 30 * MIB, 30 * MIB, 40 * MIB)
    return builder.free(BASE + 10 * MIB)


def test_an_expandable_segment_grows_and_shrinks_by_pages():
    state = find_segments(expandable().trace())
    assert state.known
    assert state.segments.size_bytes.tolist() == [40 * MIB]
    assert state.blocks.size_bytes.tolist() == [10 * MIB] * 4
    assert state.free_bytes["interleaved"] == 20 * MIB

    builder = expandable().free(BASE + 20 * MIB)
    state = find_segments(builder.trace())
    assert state.free_bytes == dict.fromkeys(FREE_CAUSES, 0) | {
        "idle": 20 * MIB,  # the second page
        "interleaved": 10 * MIB,
    }
    builder.add(Kind.EMPTY_CACHE, device=-1)
    builder.add(Kind.SEGMENT_UNMAP, address=BASE + 20 * MIB, size_bytes=20 * MIB)
    builder.stats(0, 10 * MIB, 10 * MIB, 20 * MIB)
    assert find_segments(builder.trace()).segments.size_bytes.tolist() == [20 * MIB]


def test_a_page_in_the_middle_goes_and_comes_back():
    builder = TraceBuilder().add(Kind.SEGMENT_MAP, address=BASE, size_bytes=60 * MIB)
    for i in range(3):
        builder.alloc(BASE + i * 20 * MIB, 20 * MIB)
    builder.free(BASE + 20 * MIB)
    builder.add(Kind.SEGMENT_UNMAP, address=BASE + 20 * MIB, size_bytes=20 * MIB)
    state = find_segments(builder.trace())
    assert state.segments.base.tolist() == [BASE, BASE + 40 * MIB]
    assert state.segments.size_bytes.tolist() == [20 * MIB, 20 * MIB]
    # As older recorders tell it: after the alloc, at the address of the block.
    builder.alloc(BASE + 20 * MIB, 15 * MIB)
    builder.add(Kind.SEGMENT_MAP, address=BASE + 20 * MIB, size_bytes=20 * MIB)
    builder.stats(0, 55 * MIB, 55 * MIB, 60 * MIB)
    state = find_segments(builder.trace())
    assert state.known
    assert state.segments.size_bytes.tolist() == [60 * MIB]
    assert state.blocks.state.tolist() == ["live", "live", "free", "live"]


def test_older_recorders_tell_of_a_segment_after_its_block():
    builder = TraceBuilder().alloc(BASE, 19 * MIB + 600 * 1024, extra=20 * MIB)
    builder.add(Kind.SEGMENT_ALLOC, address=BASE, size_bytes=20 * MIB)
    state = find_segments(builder.trace())
    assert state.known and state.blocks.size_bytes.tolist() == [20 * MIB]
    assert not find_segments(builder.trace(), record=0).known
    # An expandable one, of which half was mapped and free.
    builder = expandable().alloc(BASE + 30 * MIB, 25 * MIB)
    builder.add(Kind.SEGMENT_MAP, address=BASE + 30 * MIB, size_bytes=20 * MIB)
    state = find_segments(builder.trace())
    assert state.known
    assert state.blocks.size_bytes.tolist()[-2:] == [25 * MIB, 5 * MIB]


def test_a_retry_puts_a_segment_where_others_were():
    builder = TraceBuilder()
    for i in range(2):
        base = BASE + i * 20 * MIB
        builder.add(Kind.SEGMENT_ALLOC, address=base, size_bytes=20 * MIB).alloc(base, 12 * MIB)
    builder.free(BASE).free(BASE + 20 * MIB).alloc(BASE, 40 * MIB)
    builder.add(Kind.SEGMENT_ALLOC, address=BASE, size_bytes=40 * MIB)
    builder.add(Kind.RETRY, size_bytes=40 * MIB).stats(0, *[40 * MIB] * 3)
    state = find_segments(builder.trace())
    assert state.known
    assert state.segments.size_bytes.tolist() == [40 * MIB]
    assert state.blocks.state.tolist() == ["live"]


def test_counters_that_contradict_make_it_unknown_until_they_agree():
    builder = TraceBuilder().add(Kind.SEGMENT_ALLOC, address=BASE, size_bytes=20 * MIB)
    builder.alloc(BASE, 12 * MIB).stats(0, 12 * MIB, 12 * MIB, 22 * MIB)
    assert not find_segments(builder.trace()).known
    builder.stats(0, 12 * MIB, 12 * MIB, 20 * MIB, flags=StatsCause.RESYNC)
    assert find_segments(builder.trace()).known
    builder.add(Kind.GAP, address=3, device=-1)
    assert not find_segments(builder.trace()).known


def test_instants():
    builder = TraceBuilder().step(1).add(Kind.SEGMENT_ALLOC, address=BASE, size_bytes=2 * MIB)
    builder.alloc(BASE, 512).step(2).alloc(BASE + 512, 512).free(BASE).step(3)
    trace = builder.trace(batch_records=2)
    used = {
        name: int((~find_segments(trace, **{name: at}).blocks.is_free).sum())
        for name, at in {"step": 1, "event": 1, "record": 2, "time_ns": 5000}.items()
    }
    assert used == {"step": 1, "event": 2, "record": 1, "time_ns": 2}
    assert int((~find_segments(trace, step=2).blocks.is_free).sum()) == 1
    with pytest.raises(ValueError, match="step 7: the trace has steps 1 to 3"):
        find_segments(trace, step=7)
    with pytest.raises(ValueError, match="one of record, event, step and time_ns"):
        find_segments(trace, step=1, event=1)


@pytest.mark.parametrize("extreme", [2**63 - 1, -(2**63), 0, 512])
def test_numbers_from_a_broken_file_do_no_harm(extreme):
    builder = TraceBuilder()
    segment_kinds = (Kind.SEGMENT_ALLOC, Kind.SEGMENT_MAP, Kind.SEGMENT_FREE, Kind.SEGMENT_UNMAP)
    for address in (0, 2**64 - 1, 2**63, BASE, BASE + 512):
        for kind in segment_kinds:
            builder.add(kind, address=address, size_bytes=extreme)
            builder.add(kind, address=BASE, size_bytes=MIB)
            builder.alloc(address, extreme, extra=2**64 - 1)
        builder.add(Kind.RECORD_STREAM, address=address, stream=4)
        builder.add(Kind.SEGMENT_POOL, address=address, size_bytes=extreme, stream=5)
        builder.stats(extreme, 2**64 - 1, 0, 2**63).free(address)
        builder.add(Kind.EMPTY_CACHE, device=-1).stats(0, 0, 0, 0)
    stream = SegmentStream()
    for batch in builder.trace().chunks():
        lines = stream.feed_lines(batch)
        free = np.sum(list(lines.free.values()), axis=0)
        assert (lines.active + free == lines.reserved).all()
