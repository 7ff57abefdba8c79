"""GIVEN a trace, THEN its categories over time add up to the line, at the true peaks."""

from __future__ import annotations

import numpy as np
import pytest
import recorded
from hypothesis import given
from hypothesis import strategies as st
from synthetic import MIB, PHASE_NAMES, TraceBuilder, event_columns

from gpumemtrace.analysis.categories import CATEGORY_NAMES, find_categories
from gpumemtrace.analysis.category_timeline import find_category_timeline
from gpumemtrace.analysis.lines import LineStream
from gpumemtrace.analysis.peak_live_set import find_peak_live_set
from gpumemtrace.schema import Kind
from gpumemtrace.trace import Trace


def reference(trace: Trace, columns: int) -> dict[int, list[tuple[int, int, list[int]]]]:
    """Device -> (time, allocated, bytes by category), one record after the other."""
    category = find_categories(trace).category_id
    start, end = trace.time_span_ns
    live: dict[tuple[int, int], tuple[int, int]] = {}
    best: dict[tuple[int, int], tuple[int, int, int, list[int]]] = {}
    last: dict[tuple[int, int], tuple[int, int, int, list[int]]] = {}
    column_of: dict[int, int] = {}
    place = allocs = 0
    for batch, lines in LineStream(trace):
        for row in range(len(batch)):
            raw = {name: int(column[row]) for name, column in batch.raw.items()}
            key = (raw["device"], raw["address"])
            if raw["kind"] == Kind.ALLOC:
                live[key] = (-(-max(raw["size_bytes"], 0) // 512) * 512, int(category[allocs]))
                allocs += 1
            elif raw["kind"] == Kind.FREE:
                live.pop(key, None)
            device = int(lines.device[row])
            if device >= 0:
                column = int((raw["time_ns"] - start) * (columns / max(end - start, 1)))
                column = max(min(max(column, 0), columns - 1), column_of.get(device, 0))
                column_of[device] = column
                sums = [0] * len(CATEGORY_NAMES)
                for (one, _), (size, which) in live.items():
                    sums[which] += size if one == device else 0
                now = (place, raw["time_ns"], int(lines.values["allocated"][row]), sums)
                last[device, column] = now
                if (device, column) not in best or now[2] > best[device, column][2]:
                    best[device, column] = now
            place += 1
    result: dict[int, list[tuple[int, int, list[int]]]] = {}
    for device in column_of:
        rows = [row for table in (best, last) for (one, _), row in table.items() if one == device]
        by_place = {row[0]: row[1:] for row in rows}
        result[device] = [by_place[at] for at in sorted(by_place)]
    return result


@given(event_columns(), st.integers(1, 20), st.integers(1, 40))
def test_equals_the_reference(events, columns, batch_records):
    trace = Trace.from_events(events, phase_names=PHASE_NAMES)
    object.__setattr__(trace._source, "batch_records", batch_records)
    expected = reference(trace, columns)
    found = find_category_timeline(trace, columns=columns)
    assert [one.device for one in found] == sorted(expected)
    for one in found:
        rows = expected[one.device]
        assert one.time_ns.tolist() == [row[0] for row in rows]
        assert one.allocated_bytes.tolist() == [row[1] for row in rows]
        assert one.category_bytes.tolist() == [row[2] for row in rows]
        total = one.category_bytes.sum(axis=1) + one.rest_bytes
        assert np.array_equal(total, one.allocated_bytes)


def test_the_highest_row_is_the_peak_and_what_owned_it():
    trace, truth = recorded.load("gpt2")
    (found,) = find_category_timeline(trace, columns=300)
    highest = int(np.argmax(found.allocated_bytes))
    assert found.allocated_bytes[highest] == truth["peak"]["allocated_bytes.all.peak"]
    peak = find_peak_live_set(trace)
    assert found.time_ns[highest] == peak.time_ns
    groups = {group.name: group.size_bytes for group in peak.group_by("category")}
    row = dict(zip(CATEGORY_NAMES, found.category_bytes[highest].tolist(), strict=True))
    assert {name: size for name, size in row.items() if size} == groups


@pytest.mark.parametrize("batch_records", [1, 3, 1 << 18])
def test_a_slice_begins_with_what_was_there_before(batch_records):
    builder = TraceBuilder().phase("forward").alloc(512, 3 * MIB).alloc(512, 7 * MIB, device=1)
    builder.step(1).phase("backward", after_ns=5000).alloc(1 << 30, MIB, after_ns=2000)
    trace = builder.step(2).trace(batch_records=batch_records)
    part = trace.slice(steps=(1, 2))
    first, second = find_category_timeline(part, columns=4)
    start, end = part.time_span_ns
    assert first.time_ns.tolist() == [start, end - 1000]
    assert first.allocated_bytes.tolist() == [3 * MIB, 4 * MIB]
    assert first.category_bytes.sum(axis=1).tolist() == [3 * MIB, 4 * MIB]
    # A device without a record in the slice is what it was.
    assert (second.device, second.time_ns.tolist()) == (1, [start])
    assert second.allocated_bytes.tolist() == second.category_bytes.sum(axis=1).tolist()
    assert second.allocated_bytes.tolist() == [7 * MIB]
    # The picture is filled from its left edge on.
    for found in (first, second):
        from_ns, row = found.envelope(start, end, columns=4)
        assert from_ns[0] == start
        assert found.allocated_bytes[row[0]] == found.allocated_bytes[0]


def test_no_columns_is_an_error():
    with pytest.raises(ValueError, match="at least 1"):
        find_category_timeline(TraceBuilder().alloc(512, 1).trace(), columns=0)


@given(event_columns(min_events=1), st.integers(1, 30))
def test_the_envelope_shows_each_column_at_its_highest(events, columns):
    trace = Trace.from_events(events, phase_names=PHASE_NAMES)
    start, end = trace.time_span_ns
    for one in find_category_timeline(trace, columns=columns):
        from_ns, row = one.envelope(start, end, columns=columns)
        assert (np.diff(from_ns) > 0).all()
        width = max(end - start, 1) / columns
        # Where each row lies, as the sampler told it.
        of_row = [int((t - start) * (columns / max(end - start, 1))) for t in one.time_ns.tolist()]
        of_row = np.maximum.accumulate([min(max(c, 0), columns - 1) for c in of_row]).tolist()
        for column in range(columns):
            middle = start + (column + 0.5) * width
            at = np.searchsorted(from_ns, middle, side="right") - 1
            mine = [i for i, c in enumerate(of_row) if c == column]
            before = [i for i, c in enumerate(of_row) if c < column]
            if mine:
                highest = max(one.allocated_bytes[i] for i in mine)
                assert one.allocated_bytes[row[at]] == highest
            elif before:
                assert row[at] == before[-1]
            else:
                assert at == -1
