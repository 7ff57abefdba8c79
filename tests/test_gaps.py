"""GIVEN any records, WHEN the gaps between the lines are asked for, THEN they are as defined."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_gaps import (
    CAPACITY,
    MS,
    random_trace,
    rows_of,
    sample,
    slow_breaks,
    slow_moments,
    slow_settled,
)
from synthetic import MIB, TraceBuilder

from gpumemtrace.analysis.gaps import GAPS, find_gaps, gaps_at
from gpumemtrace.analysis.lines import ALLOCATOR_LINES, LineStream
from gpumemtrace.records import RAW_COLUMNS, MemorySource
from gpumemtrace.schema import DeviceUsedFlags, Kind, StatsCause
from gpumemtrace.trace import Trace

SEEDS = st.integers(0, 1 << 32)


@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_order_and_what_lies_outside_equal_their_definitions(seed):
    trace = random_trace(seed)
    rows = rows_of(trace)
    for device in find_gaps(trace):
        found: dict[str, int] = {}
        for entry in device.breaks:
            found[entry.pair] = found.get(entry.pair, 0) + entry.records
            assert len(entry.first) == min(entry.records, 5)
            assert entry.most_bytes >= max(low - high for _, low, high in entry.first) > 0
        assert found == slow_breaks(rows, device.device)

        readings = []
        for row in slow_settled(rows, device.device):
            own = row["address"]
            knows = own > 0 and row["flags"] & DeviceUsedFlags.OTHERS_KNOWN
            reading = (
                (own or row["size_bytes"]) - row["reserved"],
                (row["extra"] if knows else row["size_bytes"] - own) if own else None,
                row["size_bytes"] - own - row["extra"] if knows else None,
            )
            if not readings or readings[-1] != reading:
                readings.append(reading)
        has_stats = any(r["kind"] == Kind.STATS and r["device"] == device.device for r in rows)
        got = [(c.gaps.outside, c.gaps.others, c.gaps.unattributed) for c in device.outside]
        assert got == (readings if has_stats else [])


@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_the_highest_equal_those_of_every_moment(seed):
    trace = random_trace(seed)
    rows = rows_of(trace)
    for device in find_gaps(trace):
        moments = slow_moments(rows, device.device)
        series = {
            "requested": [row["requested"] for row in moments],
            "allocated": [row["allocated"] for row in moments],
            "active": [row["active"] for row in moments],
            "rounding": [row["allocated"] - row["requested"] for row in moments],
        }
        for name, values in series.items():
            if name not in device.highest:
                assert not values or name == "active"
                continue
            assert device.highest[name].size_bytes == max(values), name


@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_the_gaps_add_up(seed):
    trace = random_trace(seed)
    for device in find_gaps(trace):
        for extreme in device.highest.values():
            gaps = extreme.gaps
            assert gaps.requested + gaps.rounding + gaps.pending == gaps.active
            if gaps.cached is not None:
                assert gaps.active + gaps.cached == gaps.reserved
            known = [gaps.reserved, gaps.outside, gaps.others or 0, gaps.unattributed or 0]
            if gaps.outside is not None and gaps.reserved is not None:
                assert sum(known) == gaps.device_used
            if gaps.device_free is not None:
                assert gaps.device_used + gaps.device_free == gaps.capacity


def test_a_million_random_events():
    # C35: at every record the order holds, or the break is listed with its reason.
    rng = np.random.default_rng(35)
    count = 1_000_000
    kind = rng.choice(
        [1, 1, 2, 2, 3, 4, 18], count, p=[0.3, 0.19, 0.3, 0.19, 0.01, 0.00999, 0.00001]
    )
    columns = {
        "time_ns": np.cumsum(rng.integers(1, 200_000, count)),
        "kind": kind.astype(np.uint16),
        "device": np.where(kind == 18, -1, 0).astype(np.int16),
        "thread": rng.integers(1, 3, count).astype(np.uint32),
        "address": rng.integers(1, 2000, count).astype(np.uint64) * 512,
        "size_bytes": np.where(kind == 2, 0, rng.integers(1, 1 << 20, count)),
    }
    is_stats, is_sample = kind == 3, kind == 4
    lines = np.sort(rng.integers(0, 1 << 30, (count, 4)), axis=1)
    columns["size_bytes"] = np.where(is_stats, lines[:, 0], columns["size_bytes"])
    for name, line in (("address", 1), ("stream", 2), ("extra", 3)):
        columns[name] = np.where(is_stats, lines[:, line], columns.get(name, np.zeros(count, int)))
    columns["size_bytes"] = np.where(
        is_sample, rng.integers(0, 3 << 30, count), columns["size_bytes"]
    )
    columns["address"] = np.where(is_sample, rng.integers(0, 1 << 30, count), columns["address"])
    columns["stream"] = np.where(is_sample, 2 << 30, columns["stream"])
    records = {
        name: np.asarray(columns.get(name, np.zeros(count)), dtype)
        for name, dtype in RAW_COLUMNS.items()
    }
    trace = Trace(MemorySource(records, batch_records=100_000))
    (device,) = find_gaps(trace)

    values = {name: [] for name in (*ALLOCATOR_LINES, "kind")}
    for batch, got in LineStream(trace):
        mine = got.device == 0
        values["kind"].append(batch.raw["kind"][mine])
        for name in ALLOCATOR_LINES:
            values[name].append(got.values[name][mine])
    line = {name: np.concatenate(parts) for name, parts in values.items()}
    at = np.maximum.accumulate(np.where(line["kind"] == 4, np.arange(len(line["kind"])), -1))
    own = np.where(at >= 0, records["address"][kind != 18].astype(np.int64)[at], 1 << 62)
    used = np.where(at >= 0, records["size_bytes"][kind != 18][at], 1 << 62)
    knows = np.cumsum(line["kind"] == 3) > 0
    expected = {
        "requested>allocated": line["requested"] > line["allocated"],
        "allocated>active": line["allocated"] > line["active"],
        "active>reserved": knows & (line["active"] > line["reserved"]),
        "reserved>own_process": (own > 0) & (line["reserved"] > own),
        "reserved>device_used": line["reserved"] > used,
        "device_used>capacity": (line["kind"] == 4) & (used > 2 << 30),
    }
    found = dict.fromkeys(expected, 0)
    for entry in device.breaks:
        found[entry.pair] += entry.records
    assert found == {pair: int(is_broken.sum()) for pair, is_broken in expected.items()}
    assert {entry.reason for entry in device.breaks} >= {"events_lost", "sampling_lag"}


def a_miss(builder: TraceBuilder, address: int, size: int, live: int, reserved: int):
    """An alloc that misses the cache, as the recorder tells it."""
    builder.alloc(address, size, after_ns=40 * MS)
    builder.add(Kind.SEGMENT_ALLOC, address=address, size_bytes=size, extra=50_000)
    return builder.stats(live, live, live, reserved)


def test_every_gap_has_its_name():
    builder = TraceBuilder().phase("forward")
    a_miss(builder, 512, 20 * MIB - 5, 20 * MIB - 5, 20 * MIB)
    builder.rows[-1] |= {"address": 20 * MIB, "stream": 20 * MIB}
    sample(builder, used=100 * MIB, own=60 * MIB, others=30 * MIB)
    a_miss(builder, 40 * MIB, 10 * MIB, 30 * MIB - 5, 40 * MIB)
    builder.rows[-1] |= {"address": 30 * MIB, "stream": 34 * MIB}  # 4 MiB wait for another stream
    builder.free(512)
    trace = builder.trace()
    gaps = gaps_at(trace, 1)
    assert {name: getattr(gaps, name) for name in GAPS} == {
        "rounding": 5,
        "pending": 4 * MIB,
        "cached": 6 * MIB,
        "outside": 40 * MIB,
        "others": 30 * MIB,
        "unattributed": 10 * MIB,
        "device_free": 880 * MIB,
    }
    assert gaps.capacity == CAPACITY
    assert sum(getattr(gaps, name) for name in GAPS) + gaps.requested == CAPACITY
    (device,) = find_gaps(trace)
    peak = device.highest["allocated"]
    assert (peak.size_bytes, peak.place.event, peak.gaps.reserved) == (30 * MIB, 1, 40 * MIB)
    assert device.highest["device_free"].size_bytes == 880 * MIB
    assert device.highest["cached"].size_bytes == 26 * MIB
    assert device.baseline.outside_bytes == 40 * MIB
    assert [(b.pair, b.reason) for b in device.breaks] == [("active>reserved", "in_call")]
    assert all(b.is_harmless for b in device.breaks)
    with pytest.raises(ValueError, match="event 3: the trace has 3 events"):
        gaps_at(trace, 3)
    with pytest.raises(ValueError, match="device 7"):
        gaps_at(trace, 0, device=7)


def test_a_sample_that_holds_a_segment_already_says_nothing_of_what_lies_outside():
    builder = TraceBuilder()
    a_miss(builder, 512, 20 * MIB, 20 * MIB, 20 * MIB)
    sample(builder, used=50 * MIB)
    sample(builder, used=70 * MIB, after_ns=50 * MS)  # the next segment's 20 MiB are in it
    builder.alloc(40 * MIB, 20 * MIB).stats(*[40 * MIB] * 4)
    sample(builder, used=70 * MIB, after_ns=50 * MS)
    (device,) = find_gaps(builder.trace())
    assert [change.outside_bytes for change in device.outside] == [30 * MIB]
    assert not device.own_is_known


def test_growth_outside_belongs_to_the_phase_that_fills_the_time_before_it():
    builder = TraceBuilder().phase("init")
    a_miss(builder, 512, 20 * MIB, 20 * MIB, 20 * MIB)
    sample(builder, used=50 * MIB)
    for i in range(4):
        builder.phase(f"pg{i}", after_ns=40 * MS)
        sample(builder, used=(50 + 10 * i) * MIB)
        builder.phase("init", entered=False, after_ns=100 * MS)
        sample(builder, used=(60 + 10 * i) * MIB)
    (device,) = find_gaps(builder.trace())
    assert device.outside_by_phase == {(f"pg{i}",): 10 * MIB for i in range(4)}
    assert device.outside[1].possible_phases[0] == ("pg0",)


def test_reserved_above_what_the_device_has_in_use():
    builder = TraceBuilder()
    a_miss(builder, 512, 20 * MIB, 20 * MIB, 20 * MIB)
    sample(builder, used=10 * MIB)  # and nothing moves: it can't be
    builder.free(512, after_ns=50 * MS)
    sample(builder, used=30 * MIB)
    a_miss(builder, 512, 30 * MIB, 30 * MIB, 50 * MIB)  # since the sample
    (device,) = find_gaps(builder.trace())
    breaks = {(b.pair, b.reason): b.records for b in device.breaks}
    assert breaks == {
        ("active>reserved", "in_call"): 2,
        ("reserved>device_used", "unexplained"): 2,
        ("reserved>device_used", "sampling_lag"): 1,
    }


def test_a_call_that_flushes_many_segments_is_one_call():
    builder = TraceBuilder().stats(0, 0, 0, 40 * MIB)
    builder.alloc(1 << 40, 60 * MIB).add(Kind.SEGMENT_ALLOC, address=1 << 40, size_bytes=60 * MIB)
    for i in range(20):
        builder.add(Kind.SEGMENT_FREE, address=(2 + 2 * i) * MIB, size_bytes=2 * MIB)
    builder.add(Kind.RETRY, size_bytes=60 * MIB).stats(*[60 * MIB] * 4)
    trace = builder.trace()
    (device,) = find_gaps(trace)
    assert [(b.pair, b.reason) for b in device.breaks] == [("active>reserved", "in_call")]
    assert gaps_at(trace, 0).reserved == 60 * MIB


def test_counters_that_contradict_each_other():
    builder = TraceBuilder().stats(600, 512, 400, 100, flags=StatsCause.RESYNC)
    (device,) = find_gaps(builder.trace())
    assert {(b.pair, b.reason) for b in device.breaks} == {
        ("requested>allocated", "counters"),
        ("allocated>active", "counters"),
        ("active>reserved", "counters"),
    }


def test_without_counters_or_samples_gaps_are_not_known():
    (device,) = find_gaps(TraceBuilder().alloc(512, 100).trace())
    assert set(device.highest) == {"requested", "allocated", "rounding"}
    assert device.highest["rounding"].size_bytes == 412
    assert device.baseline is None
    gaps = device.highest["allocated"].gaps
    assert (gaps.reserved, gaps.cached, gaps.outside, gaps.device_free) == (None,) * 4
    assert device.to_dict()["phases"][0]["at_peak"]["rounding"] == 412


def test_numbers_from_a_broken_file_do_no_harm():
    rng = random.Random(0)
    extremes = [2**63 - 1, -(2**63), 0, 2**64 - 1]
    builder = TraceBuilder()
    for _ in range(500):
        row = {name: rng.choice(extremes) % 2**64 for name in ("address", "stream", "extra")} | {
            "size_bytes": rng.choice(extremes[:3])
        }
        builder.add(Kind(rng.choice(list(Kind))), **row)
        builder.rows[-1]["time_ns"] = rng.choice(extremes[:3])
    find_gaps(builder.trace())
