"""GIVEN a run of an allocator, THEN its map of addresses over time is what each instant says."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_allocator import runs
from synthetic import MIB, TraceBuilder

from gpumemtrace.analysis.segment_map import NOT_RESERVED, find_segment_maps
from gpumemtrace.analysis.segments import SegmentState, find_segments


def overlap(first: float, end: float, other_first: float, other_end: float) -> float:
    return max(0.0, min(end, other_end) - max(first, other_first))


def idle_of(state: SegmentState, i: int) -> tuple[int, int]:
    """Where the whole pages of a free block begin, and how many bytes they are."""
    size = int(state.blocks.idle_bytes[i])
    segment = int(state.blocks.segment[i])
    page, base = int(state.segments.page_bytes[segment]), int(state.segments.base[segment])
    at = int(state.blocks.address[i])
    while size and page and (at - base) % page:
        at += 512
    return at, size


def reference(states: list[SegmentState], rows: int, *, idle: bool = False) -> list[list[int]]:
    """One state, row, segment and block after the other."""
    reserved: list[list[int]] = []
    every = {
        (int(b), int(n))
        for s in states
        for b, n in zip(s.segments.base, s.segments.size_bytes, strict=True)
    }
    for base, size in sorted(every):
        if reserved and base <= reserved[-1][1]:
            reserved[-1][1] = max(reserved[-1][1], base + size)
        else:
            reserved.append([base, base + size])
    starts = np.concatenate([[0], np.cumsum([end - first for first, end in reserved])]).tolist()

    def place(address: int) -> int:
        (which,) = [i for i, (first, end) in enumerate(reserved) if first <= address < end]
        return starts[which] + address - reserved[which][0]

    edges = np.linspace(0, max(starts[-1], 1), rows + 1).tolist()
    result = []
    for state in states:
        percent = []
        for low, high in itertools.pairwise(edges):
            held = used = 0.0
            for base, size in zip(state.segments.base, state.segments.size_bytes, strict=True):
                at = place(int(base))
                held += overlap(at, at + int(size), low, high)
            for i, address in enumerate(state.blocks.address):
                if idle:
                    at, size = idle_of(state, i)
                    used += overlap(place(at), place(at) + size, low, high) if size else 0
                elif state.blocks.state[i] != "free":
                    at = place(int(address))
                    used += overlap(at, at + int(state.blocks.size_bytes[i]), low, high)
            percent.append(round(100 * used / held) if held > 0.5 else NOT_RESERVED)
        result.append(percent)
    return result


@given(runs(), st.integers(1, 12), st.integers(1, 9), st.integers(1, 40))
def test_equals_the_reference(run, columns, rows, batch_records):
    trace = run[0].trace.trace(batch_records=batch_records)
    cuts = np.unique(np.linspace(0, trace.record_count, columns + 1).astype(int))[1:].tolist()
    found = find_segment_maps(trace, columns=columns, rows=rows)
    for one in found:
        states = [find_segments(trace, device=one.device, record=cut - 1) for cut in cuts]
        known = [state for state in states if state.known]
        if len(known) + one.unknown_columns < len(states):
            known = known[len(known) - len(one.time_ns) :]  # the device was not there yet
        assert one.use_percent.shape == (len(known), rows)
        # Halves may be rounded either way.
        assert (
            np.abs(one.use_percent - np.array(reference(known, rows)).reshape(-1, rows)).max(
                initial=0
            )
            <= 1
        )
        idle = np.array(reference(known, rows, idle=True)).reshape(-1, rows)
        assert np.abs(one.idle_percent - idle).max(initial=0) <= 1
        assert one.time_ns.tolist() == [state.time_ns for state in known]


def test_without_segments_nothing_is_known():
    trace = TraceBuilder().alloc(512, MIB).free(512).trace()
    assert all(not len(one.time_ns) for one in find_segment_maps(trace))


def test_no_columns_or_rows_is_an_error():
    trace = TraceBuilder().alloc(512, 1).trace()
    with pytest.raises(ValueError, match="columns must be"):
        find_segment_maps(trace, columns=0)
    with pytest.raises(ValueError, match="rows must be"):
        find_segment_maps(trace, rows=0)
