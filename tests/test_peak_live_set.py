"""GIVEN any records, WHEN the peak is taken apart, THEN the parts are those of a slow reference."""

from __future__ import annotations

import numpy as np
import pytest
import recorded
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import MIB, PHASE_NAMES, TraceBuilder, event_columns

from gpumemtrace.analysis.categories import CATEGORY_NAMES, find_categories
from gpumemtrace.analysis.live_set import GROUPINGS
from gpumemtrace.analysis.peaks import find_peaks
from gpumemtrace.schema import Kind, StatsCause
from gpumemtrace.trace import Trace

NAMES = ("forward", "backward", "optimizer", "data")


def slow_live_sets(columns, device: int) -> list[dict[int, int]]:
    """After each event, the live blocks of a device: number of the alloc -> its event."""
    live: dict[tuple[int, int], tuple[int, int]] = {}
    allocs, result = 0, []
    for event, (kind, address, of) in enumerate(
        zip(*(columns[name].tolist() for name in ("kind", "address", "device")), strict=True)
    ):
        live.pop((of, address), None)
        if kind == 1:
            live[of, address] = (allocs, event)
            allocs += 1
        result.append({n: e for (d, _), (n, e) in live.items() if d == device})
    return result


def rounded(size: int) -> int:
    return -(-size // 512) * 512


@settings(max_examples=50)
@given(event_columns(), st.integers(1, 9), st.sampled_from(["requested", "allocated"]), st.data())
def test_every_step_in_groups(columns, batch_records, line, data):
    trace = Trace.from_events(columns, phase_names=NAMES)
    object.__setattr__(trace._source, "batch_records", batch_records)
    category_id = find_categories(trace).category_id
    sizes = columns["size_bytes"].tolist()
    bytes_of = (lambda e: sizes[e]) if line == "requested" else (lambda e: rounded(sizes[e]))
    for device in trace.active_devices:
        live = [*slow_live_sets(columns, device), {}]  # the last: event -1, before the first
        total = [sum(map(bytes_of, blocks.values())) for blocks in live]
        peak = trace.peak(device=device, line=line)
        numbers = peak.steps.number.tolist()
        assert set(numbers) >= set(columns["step"].tolist())
        for i, step in enumerate(numbers):
            mine = np.flatnonzero(columns["step"] == step).tolist()
            if not mine:
                continue
            # A step begins with what the one before it left.
            event = max([mine[0] - 1, *mine], key=lambda e: (total[e], -e))
            assert peak.steps.size_bytes[i] == total[event]
            by_category = np.zeros(len(CATEGORY_NAMES), np.int64)
            by_phase = np.zeros(len(NAMES) + 1, np.int64)
            for number, birth in live[event].items():
                by_category[category_id[number]] += bytes_of(birth)
                by_phase[columns["phase"][birth] + 1] += bytes_of(birth)
            np.testing.assert_array_equal(peak.steps.category_bytes[i], by_category)
            np.testing.assert_array_equal(peak.steps.phase_bytes[i], by_phase)
            assert peak.steps.rest_bytes["not_seen"][i] == 0
            if event in mine:
                assert peak.steps.event[i] == event
                assert peak.steps.phase[i] == columns["phase"][event]
            if data.draw(st.booleans()):
                one = trace.peak(step, device=device, line=line)
                births = [birth for _, birth in sorted(live[event].items())]
                assert one.size_bytes == total[event]
                assert one.blocks.alloc.tolist() == sorted(live[event])
                assert one.blocks.birth_step.tolist() == columns["step"][births].tolist()
                assert one.blocks.birth_phase.tolist() == columns["phase"][births].tolist()
        for by in GROUPINGS:
            assert sum(group.size_bytes for group in peak.group_by(by)) == peak.size_bytes
        assert peak.size_bytes == max(total)


@given(event_columns(max_events=200), st.data())
@settings(max_examples=40)
def test_a_slice_has_the_same_steps(columns, data):
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES)
    numbers = [n for n in trace.steps.number.tolist() if n >= 0]
    if not numbers or not trace.active_devices:
        return
    step = data.draw(st.sampled_from(numbers))
    part = trace.slice(steps=(step, step + 1))
    device = trace.active_devices[0]
    whole = trace.peak(step, device=device)
    if device not in {found.device for found in find_peaks(part)}:
        assert whole.size_bytes == 0
        return
    mine = part.peak(step, device=device)
    assert mine.size_bytes == whole.size_bytes
    assert mine.group_by("category") == whole.group_by("category")
    np.testing.assert_array_equal(mine.blocks.alloc, whole.blocks.alloc)


@pytest.mark.parametrize("name", ["gpt2", "resnet"])
def test_real_runs(name):
    trace, truth = recorded.load(name)
    (device,) = find_peaks(trace)
    for line in ("requested", "allocated", "active", "reserved"):
        peak = trace.peak(line=line)
        highest = device.lines[line]
        assert peak.size_bytes == truth["peak"][f"{line}_bytes.all.peak"]
        assert (peak.step, peak.phase, peak.event) == (highest.step, highest.phase, highest.event)
        np.testing.assert_array_equal(peak.steps.size_bytes, device.steps.peak[line])
        rest = sum(peak.steps.rest_bytes.values())
        for parts in (peak.steps.category_bytes, peak.steps.phase_bytes):
            np.testing.assert_array_equal(parts.sum(axis=1) + rest, peak.steps.size_bytes)
        for by in GROUPINGS:
            assert sum(group.size_bytes for group in peak.group_by(by)) == peak.size_bytes
        assert not peak.steps.rest_bytes["not_seen"].any()
    peak = trace.peak(30)
    assert peak.phase == "backward"
    assert [group.name for group in peak.group_by("step")] == ["step 30", "before step 30"]
    assert peak.group_by("category")[0].name == "activation"
    assert peak.to_dict()["steps"]["phase"][30] == "backward"


def test_what_the_trace_has_not_seen_is_a_group_of_its_own():
    builder = TraceBuilder().alloc(512, 1000).step(1)
    builder.add(Kind.GAP, address=5, device=-1).stats(
        9000, 9216, 9216, MIB, flags=StatsCause.RESYNC
    )
    peak = builder.alloc(8192, 100).trace().peak()
    assert peak.size_bytes == 9216 + 512
    assert peak.rest_bytes == {"not_seen": 9216 - 1024}
    names = {group.name: group.size_bytes for group in peak.group_by("step")}
    assert names == {"not seen by the trace": 8192, "before step 1": 1024, "step 1": 512}


def test_blocks_from_before_the_trace():
    builder = TraceBuilder().alloc(512, 1000).alloc(4096, 2000)
    builder.stats(3000, 3072, 3072, MIB, flags=StatsCause.BASELINE)
    peak = builder.alloc(8192, 100).trace(batch_records=2).peak()
    assert peak.blocks.is_from_before.tolist() == [True, True, False]
    assert [g.name for g in peak.group_by("step")] == ["before the trace", "step 0"]


def test_wrong_questions():
    trace = TraceBuilder().alloc(512, 1000).step(1).trace()
    for question, message in (
        ({"line": "device_used"}, "line must be one of requested"),
        ({"step": 7}, "no step 7: the trace has steps 0 to 1"),
        ({"device": 3}, "cuda:3 has no events in this trace: it has cuda:0"),
        ({"line": "reserved"}, "no readings of the counters"),
    ):
        with pytest.raises(ValueError, match=message):
            trace.peak(**question)
    with pytest.raises(ValueError, match="by must be one of category"):
        trace.peak().group_by("color")
    with pytest.raises(ValueError, match="nothing was allocated"):
        TraceBuilder().step(1).trace().peak()


def test_kinds_of_blocks_are_those_of_a_plain_count():
    peak = recorded.load("gpt2")[0].peak()
    counts: dict[tuple[int, str], int] = {}
    for size, id in zip(
        peak.blocks.allocated_bytes.tolist(), peak.blocks.category_id.tolist(), strict=True
    ):
        kind = size, CATEGORY_NAMES[id]
        counts[kind] = counts.get(kind, 0) + 1
    kinds = peak.blocks.kinds()
    assert {(kind.block_bytes, kind.category): kind.blocks for kind in kinds} == counts
    assert all(kind.size_bytes == kind.blocks * kind.block_bytes for kind in kinds)
    assert [k.size_bytes for k in kinds] == sorted((k.size_bytes for k in kinds), reverse=True)
