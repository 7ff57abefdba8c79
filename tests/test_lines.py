"""GIVEN any records, WHEN the lines are built, THEN they equal a slow, obvious reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import MIB, PHASE_NAMES, TraceBuilder, event_columns

from gpumemtrace import _core
from gpumemtrace.analysis.lines import ALLOCATOR_LINES, LineStream
from gpumemtrace.analysis.peaks import find_peaks
from gpumemtrace.schema import Kind, StatsCause
from gpumemtrace.trace import Trace


def lines_of(trace: Trace) -> list[tuple[int, dict[str, int], bool]]:
    """Device, lines and certainty of every record, in a list."""
    result = []
    for batch, lines in LineStream(trace):
        for i in range(len(batch)):
            values = {name: int(lines.values[name][i]) for name in ALLOCATOR_LINES}
            result.append((int(lines.device[i]), values, bool(lines.uncertain[i])))
    return result


def rounded(size: int) -> int:
    return -(-size // 512) * 512


def slow_requested_allocated(columns) -> list[tuple[int, int]]:
    """Requested and allocated of the event's device after each event."""
    live: dict[tuple[int, int], int] = {}
    result = []
    for kind, address, size, device in zip(
        *(columns[name].tolist() for name in ("kind", "address", "size_bytes", "device")),
        strict=True,
    ):
        if kind == 1:
            live[device, address] = size
        else:
            live.pop((device, address), None)
        sizes = [size for (d, _), size in live.items() if d == device]
        result.append((sum(sizes), sum(rounded(size) for size in sizes)))
    return result


@given(event_columns())
def test_requested_and_allocated_are_sums_over_the_live_blocks(columns):
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES)
    got = [
        (values["requested"], values["allocated"])
        for device, values, _ in lines_of(trace)
        if device >= 0
    ]
    assert got == slow_requested_allocated(columns)


@given(event_columns(max_events=200), st.integers(1, 30))
@settings(max_examples=30)
def test_batches_of_any_size_give_the_same(columns, batch_records):
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES)
    whole = lines_of(trace)
    object.__setattr__(trace._source, "batch_records", batch_records)
    assert lines_of(trace) == whole


@given(event_columns())
def test_peaks_equal_those_of_the_lines(columns):
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES)
    object.__setattr__(trace._source, "batch_records", 7)
    slow = slow_requested_allocated(columns)
    for device in find_peaks(trace):
        mine = np.flatnonzero(columns["device"] == device.device)
        values = [slow[i] for i in mine]
        for i, name in enumerate(("requested", "allocated")):
            peak = device.lines[name]
            series = [pair[i] for pair in values]
            assert peak.size_bytes == max(series)
            first = int(mine[np.argmax(series)])
            assert peak.event == first
            assert peak.time_ns == columns["time_ns"][first]
            assert peak.step == columns["step"][first]
            phase = columns["phase"][first]
            assert peak.phase == (PHASE_NAMES[phase] if phase >= 0 else None)
            # Per step: the values in it and the one carried in.
            numbers = device.steps.number.tolist()
            for j, step in enumerate(trace.steps):
                inside = [
                    v[i]
                    for k, v in zip(mine, values, strict=True)
                    if step.first_event <= k < step.end_event
                ]
                before = [v[i] for k, v in zip(mine, values, strict=True) if k < step.first_event]
                carried = before[-1] if before else 0
                at = numbers.index(step.number)
                assert device.steps.peak[name][at] == max([carried, *inside]), (name, j)
                assert device.steps.end[name][at] == [carried, *inside][-1]


def test_counters_set_every_line():
    builder = TraceBuilder().alloc(512, 100)
    builder.stats(100, 512, 512, 2 * MIB).alloc(1024, 100).stats(5, 1024, 4096, 6 * MIB)
    builder.alloc(8192, 700).free(512)
    got = [values for _, values, _ in lines_of(builder.trace())]
    assert [v["requested"] for v in got] == [100, 100, 200, 5, 705, 605]
    assert [v["allocated"] for v in got] == [512, 512, 1024, 1024, 2048, 1536]
    # 3072 bytes waited for another stream when the counters were read last.
    assert [v["active"] for v in got] == [512, 512, 1024, 4096, 5120, 4608]
    assert [v["reserved"] for v in got] == [0, 2 * MIB, 2 * MIB, 6 * MIB, 6 * MIB, 6 * MIB]


def test_without_counters_reserved_and_active_are_not_known():
    (device,) = find_peaks(TraceBuilder().alloc(512, 100).trace())
    assert device.lines["reserved"] is None
    assert device.lines["active"] is None
    assert device.lines["allocated"].size_bytes == 512
    assert set(device.steps.peak) == {"requested", "allocated"}


def test_the_block_that_the_allocator_tells():
    # 19 MiB in a cached block of 20 MiB: taken whole, and given back whole.
    builder = TraceBuilder().alloc(512, 19 * MIB, extra=20 * MIB).alloc(1024, 100).free(512)
    assert [v["allocated"] for _, v, _ in lines_of(builder.trace())] == [
        20 * MIB,
        20 * MIB + 512,
        512,
    ]


def test_a_counter_that_another_thread_moved_is_not_taken_for_the_block():
    # The counter holds 100 MiB of another thread's, of which the alloc was not seen yet.
    builder = TraceBuilder().alloc(512, 2 * MIB, extra=102 * MIB).free(512)
    assert [v["allocated"] for _, v, _ in lines_of(builder.trace())] == [102 * MIB, 100 * MIB]


def test_a_counter_after_a_gap_says_nothing_of_the_block():
    builder = TraceBuilder().alloc(512, 5 * MIB, extra=5 * MIB)
    builder.add(Kind.GAP, address=1, device=-1).alloc(1024, 2 * MIB, extra=10 * MIB).free(1024)
    got = [v["allocated"] // MIB for device, v, _ in lines_of(builder.trace()) if device >= 0]
    assert got == [5, 10, 8]


def test_a_large_block_that_was_not_split():
    # A miss makes a segment of 20 MiB for 19.5 MiB: less than 1 MiB is left, so it stays whole,
    # now and when it comes from the cache later.
    base, size = 1 << 40, 19 * MIB + 512 * 1024
    builder = TraceBuilder().alloc(base, size).stats(size, 20 * MIB, 20 * MIB, 20 * MIB)
    builder.free(base).alloc(base, size).free(base)
    # 18 MiB of the same segment: 2 MiB are left, so it is split; then the rest is taken whole.
    builder.alloc(base, 18 * MIB).alloc(base + 18 * MIB, 2 * MIB - 1024).free(base)
    got = [values["allocated"] // 512 for _, values, _ in lines_of(builder.trace())]
    whole, part = 20 * MIB // 512, 18 * MIB // 512
    assert got == [39936, whole, 0, whole, 0, part, whole, whole - part]


def test_expandable_segments_split_to_the_last():
    base, size = 1 << 40, 19 * MIB + 512 * 1024
    builder = TraceBuilder().alloc(base, size).stats(size, size, size, 20 * MIB)
    builder.free(base).alloc(base, size)
    got = [values["allocated"] for _, values, _ in lines_of(builder.trace())]
    assert got == [size, size, 0, size]


def test_mapped_segments_tell_that_rounding_is_exact():
    base = 1 << 40
    builder = TraceBuilder().alloc(base, 20 * MIB).add(Kind.SEGMENT_MAP, size_bytes=20 * MIB)
    builder.stats(*[20 * MIB] * 4).free(base).alloc(base, 20 * MIB - 512)
    assert lines_of(builder.trace())[-1][1]["allocated"] == 20 * MIB - 512


def test_counters_read_for_another_reason_say_nothing_of_a_segment():
    base, size = 1 << 40, 19 * MIB + 512 * 1024
    builder = TraceBuilder().alloc(base, size).stats(size, *[20 * MIB] * 3).free(base)
    builder.stats(0, 0, 0, 20 * MIB, flags=StatsCause.RESYNC).alloc(base, size)
    builder.stats(size, *[20 * MIB] * 3, flags=StatsCause.RESYNC).free(base).alloc(base, size)
    assert lines_of(builder.trace())[-1][1]["allocated"] == 20 * MIB


def test_lines_are_uncertain_from_a_gap_to_the_next_counters():
    builder = TraceBuilder().alloc(512, 100).add(Kind.GAP, address=7, device=-1)
    builder.alloc(1024, 100).stats(300, 1536, 1536, 2 * MIB).alloc(2048, 1).free(4096)
    builder.alloc(8192, 1)
    got = [uncertain for device, _, uncertain in lines_of(builder.trace()) if device >= 0]
    # The free of a block that was allocated in the gap: its size is not known.
    assert got == [False, True, False, False, True, True]


def test_a_block_lost_in_a_gap_is_not_subtracted_twice():
    # Its free was lost; the counters after the gap no longer hold it.
    builder = TraceBuilder().alloc(512, 100).add(Kind.GAP, address=1, device=-1)
    builder.stats(0, 0, 0, 2 * MIB).alloc(512, 300)
    trace = builder.trace()
    assert lines_of(trace)[-1][1]["requested"] == 300
    stream = LineStream(trace)
    list(stream)
    assert stream.anomaly_counts["double_alloc"] == 0


def test_a_free_may_not_know_its_device():
    builder = TraceBuilder().alloc(512, 100, device=1).free(512, device=-1)
    assert lines_of(builder.trace())[-1][0] == 1
    assert lines_of(builder.trace())[-1][1]["allocated"] == 0


def test_devices_are_kept_apart():
    builder = TraceBuilder().alloc(512, 100, device=0).alloc(512, 900, device=1)
    builder.free(512, device=0)
    peaks = find_peaks(builder.trace())
    assert [device.device for device in peaks] == [0, 1]
    assert [device.lines["requested"].size_bytes for device in peaks] == [100, 900]


def test_samples_of_the_whole_device():
    builder = TraceBuilder().add(Kind.DEVICE_USED, size_bytes=5 * MIB).alloc(512, 1).step(1)
    builder.add(Kind.DEVICE_USED, size_bytes=9 * MIB).add(Kind.DEVICE_USED, size_bytes=2 * MIB)
    (device,) = find_peaks(builder.trace())
    assert device.lines["device_used"].size_bytes == 9 * MIB
    assert device.steps.peak["device_used"].tolist() == [5 * MIB, 9 * MIB]
    assert device.steps.end["device_used"].tolist() == [5 * MIB, 2 * MIB]


def test_a_slice_begins_with_the_lines_that_were_left():
    builder = TraceBuilder().alloc(512, 5000).stats(5000, 5120, 5120, 2 * MIB).step(1)
    builder.free(512).step(2).alloc(512, 100)
    (device,) = find_peaks(builder.trace().slice(steps=(1, 2)))
    assert device.lines["allocated"].size_bytes == 5120
    assert device.lines["reserved"].size_bytes == 2 * MIB
    assert device.steps.number.tolist()[0] == 1
    assert device.steps.peak["allocated"][0] == 5120
    assert device.steps.end["allocated"][0] == 0


@pytest.mark.parametrize("extreme", [2**63 - 1, -(2**63), 0])
def test_numbers_from_a_broken_file_do_no_harm(extreme):
    builder = TraceBuilder()
    for address in (0, 2**64 - 1, 2**63):
        builder.alloc(address, extreme, extra=2**64 - 1)
        builder.alloc(address, extreme)
        builder.stats(extreme, 2**64 - 1, 0, 2**63)
        builder.alloc(address, 3 * MIB).stats(1, 5, 2**64 - 1, 2**64 - 1)
        builder.free(address).free(address, size_bytes=extreme)
    lines_of(builder.trace())
    find_peaks(builder.trace())
    builder.trace().lifetimes()


def slow_pairs(columns):
    """Alloc rows with the row of their death, -1 = alive."""
    live, death = {}, {}
    for row, (kind, address, device) in enumerate(
        zip(*(columns[name].tolist() for name in ("kind", "address", "device")), strict=True)
    ):
        if (address, device) in live:
            death[live.pop((address, device))] = row
        if kind == 1:
            live[address, device] = row
            death[row] = -1
    return sorted(death.items())


@given(event_columns(max_events=200))
def test_lifetimes_equal_those_of_a_dictionary(columns):
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES)
    object.__setattr__(trace._source, "batch_records", 13)
    lifetimes = trace.lifetimes()
    got = list(zip(lifetimes.birth_index.tolist(), lifetimes.death_index.tolist(), strict=True))
    assert got == slow_pairs(columns)
    for i, (birth, death) in enumerate(got):
        assert lifetimes.address[i] == columns["address"][birth]
        assert lifetimes.size_bytes[i] == columns["size_bytes"][birth]
        assert lifetimes.birth_step[i] == columns["step"][birth]
        assert lifetimes.birth_phase[i] == columns["phase"][birth]
        assert lifetimes.death_step[i] == (columns["step"][death] if death >= 0 else -1)
        assert lifetimes.death_phase[i] == (columns["phase"][death] if death >= 0 else -1)
        assert lifetimes.birth_thread[i] == columns["thread"][birth]
        assert lifetimes.death_thread[i] == (columns["thread"][death] if death >= 0 else 0)
        assert lifetimes.device[i] == columns["device"][birth]
        is_freed = death >= 0 and columns["kind"][death] == 2
        assert lifetimes.fate[i] == ("freed" if is_freed else "alive" if death < 0 else "lost")
    frees = int(np.count_nonzero(columns["kind"] == 2))
    assert lifetimes.unborn_frees == frees - np.count_nonzero(lifetimes.fate == "freed")
    assert not lifetimes.is_from_before.any() and not lifetimes.driver_ns.any()


def test_lifetimes_tell_the_time_in_the_driver_and_what_was_there_before():
    builder = TraceBuilder()
    builder.add(Kind.SEGMENT_ALLOC, address=512, size_bytes=2 * MIB)
    builder.alloc(512, 100, stream=7).alloc(1024, 100, device=1)
    builder.stats(100, 512, 512, 2 * MIB, flags=StatsCause.BASELINE)
    builder.stats(100, 512, 512, 2 * MIB, flags=StatsCause.BASELINE, device=1)
    builder.alloc(2048, 300).add(Kind.SEGMENT_ALLOC, address=2048, size_bytes=MIB, extra=45_000)
    builder.alloc(4096, 300)
    builder.alloc(8192, 50, device=1)
    builder.add(Kind.SEGMENT_MAP, address=8192, size_bytes=MIB, extra=9_000, device=1)
    builder.add(Kind.RETRY, size_bytes=50, extra=9_500, device=1)
    builder.add(Kind.ALLOC_FAILED, size_bytes=1 << 40, device=1)
    builder.add(Kind.RETRY, size_bytes=1 << 40, extra=70_000, device=1)
    builder.free(9999)
    lifetimes = builder.trace(batch_records=3).lifetimes()
    assert lifetimes.driver_ns.tolist() == [0, 0, 45_000, 0, 9_500]
    assert lifetimes.is_from_before.tolist() == [True, True, False, False, False]
    assert lifetimes.stream.tolist() == [7, 0, 0, 0, 0]
    assert lifetimes.unborn_frees == 1


def test_tags_name_the_category():
    builder = TraceBuilder().alloc(512, 100).alloc(4096, 1000).alloc(8192, 10)
    builder.add(Kind.TAG, address=512, size_bytes=100, stream=1)
    builder.add(Kind.TAG, address=4096 + 512, size_bytes=20, stream=4)  # a view into the block
    builder.add(Kind.TAG, address=4096 + 1000, size_bytes=20, stream=2)  # behind it: nobody's
    builder.add(Kind.TAG, address=8192, size_bytes=20, stream=77)  # of a newer version
    lifetimes = builder.trace().lifetimes()
    assert lifetimes.category.tolist() == ["parameter", "optimizer_state", "unknown"]


def slow_m4(times, values, start, end, columns, initial):
    result, carried, at = [], initial, 0
    placed = []
    for time, value in zip(times, values, strict=True):
        column = int((time - start) * (columns / (end - start))) if end > start else 0
        at = max(at, min(max(column, 0), columns - 1))
        placed.append((at, value))
    for column in range(columns):
        inside = [carried, *(value for at, value in placed if at == column)]
        result.append([inside[0], min(inside), max(inside), inside[-1]])
        carried = inside[-1]
    return result


@given(
    st.lists(st.tuples(st.integers(-20, 120), st.integers(0, 10**12), st.integers(0, 1))),
    st.integers(1, 30),
    st.sampled_from([(0, 100), (10, 50), (5, 5)]),
)
def test_m4_equals_every_point(points, columns, span):
    points = sorted(points, key=lambda point: point[0] // 7)  # the clock steps back a little
    times, values, devices = np.array(points, np.int64).reshape(-1, 3).T
    sampler = _core.Downsampler(*span, columns, 3)
    for part in np.array_split(np.arange(len(times)), 3):
        sampler.feed(times[part], values[part], devices[part].astype(np.int16), 1)
    mine = devices == 1
    expected = slow_m4(times[mine].tolist(), values[mine].tolist(), *span, columns, 3)
    assert sampler.finish().tolist() == expected
