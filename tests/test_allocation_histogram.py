"""GIVEN any trace, WHEN allocations are counted, THEN it is what one row after the other says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import recorded
from hypothesis import given
from hypothesis import strategies as st
from synthetic import MIB, PHASE_NAMES, TraceBuilder, event_columns

from gpumemtrace.analysis.allocation_histogram import (
    LIFETIME_EDGES_NS,
    SIZE_EDGES_BYTES,
    find_allocation_histograms,
)
from gpumemtrace.analysis.categories import CATEGORY_NAMES
from gpumemtrace.from_events import source_from_events
from gpumemtrace.trace import Trace

ALIVE = len(LIFETIME_EDGES_NS) + 1


def reference(trace: Trace) -> dict[int, dict[tuple[int, int, int], tuple[int, int]]]:
    """Row after row of the lifetimes; device -> cell -> (allocs, bytes)."""
    lives, time_ns = trace.lifetimes(), trace.time_ns.tolist()
    cells: dict[int, dict[tuple[int, int, int], tuple[int, int]]] = {}
    for i in range(len(lives)):
        size_bytes = int(lives.size_bytes[i])
        size = sum(1 for edge in SIZE_EDGES_BYTES.tolist() if edge < size_bytes)
        lifetime = ALIVE
        if lives.fate[i] == "freed":
            lived = time_ns[lives.death_index[i]] - time_ns[lives.birth_index[i]]
            lifetime = sum(1 for edge in LIFETIME_EDGES_NS.tolist() if edge <= lived)
        cell = size, lifetime, int(lives.category_id[i])
        of_device = cells.setdefault(int(lives.device[i]), {})
        allocs, total = of_device.get(cell, (0, 0))
        of_device[cell] = allocs + 1, total + size_bytes
    return cells


@given(columns=event_columns(), batch_records=st.integers(1, 20), first=st.integers(0, 3))
def test_equals_the_reference(columns, batch_records, first):
    source = source_from_events(columns, phase_names=PHASE_NAMES)
    whole = Trace(replace(source, batch_records=batch_records))
    steps = np.unique(columns["step"][columns["step"] >= 0]).tolist()
    trace = whole
    if first and first <= len(steps):
        trace = whole.slice(steps=(steps[first - 1], 99))
    expected = reference(trace)
    found = {one.device: one for one in find_allocation_histograms(trace)}
    assert found.keys() == expected.keys()
    for device, cells in expected.items():
        one = found[device]
        for cell, (allocs, size_bytes) in cells.items():
            assert (one.allocs[cell], one.size_bytes[cell]) == (allocs, size_bytes)
        assert one.total_allocs == sum(allocs for allocs, _ in cells.values())
        assert one.total_bytes == sum(size for _, size in cells.values())


def test_a_recorded_run():
    trace = recorded.load("gpt2")[0]
    (one,) = find_allocation_histograms(trace)
    lives = trace.lifetimes()
    assert one.total_allocs == len(lives)
    assert one.total_bytes == lives.size_bytes.sum()
    assert one.allocs[:, ALIVE].sum() == np.count_nonzero(lives.fate != "freed")
    by_category = one.allocs.sum(axis=(0, 1))
    for i in range(len(CATEGORY_NAMES)):
        assert by_category[i] == np.count_nonzero(lives.category_id == i)


@pytest.mark.parametrize(
    ("size", "row"), [(0, 0), (512, 0), (513, 1), (MIB, 11), (MIB + 1, 12), (1 << 36, 27)]
)
def test_sizes_at_the_edges(size, row):
    (one,) = find_allocation_histograms(TraceBuilder().alloc(512, size).trace())
    assert one.allocs[row].sum() == 1
