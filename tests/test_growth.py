"""GIVEN runs whose growth is known, WHEN it is judged, THEN verdict, rate, owner are right."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
import recorded
from growth_runs import (
    GIB,
    Run,
    cleared_every,
    growing_buffer,
    leak,
    noise,
    train,
    with_reserved,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import MIB, PHASE_NAMES, event_columns

from gpumemtrace.analysis.categories import Categories
from gpumemtrace.analysis.growth import DeviceGrowth, find_growth
from gpumemtrace.analysis.lines import feed_lines
from gpumemtrace.analysis.retention import BirthGroup, DeviceRetention, RetentionFinder
from gpumemtrace.marks import begins_at_step
from gpumemtrace.schema import Kind
from gpumemtrace.trace import Trace


def judged(run: Run | Trace, **options: int) -> DeviceGrowth:
    growth = (run if isinstance(run, Trace) else run.trace()).growth(**options)
    (device,) = growth.devices
    assert growth.verdict == device.verdict
    return device


NOISE = noise(0.5)


class TestLeaks:
    @pytest.mark.parametrize("batch_bytes", [lambda step: MIB, NOISE, noise(0.5, base_bytes=GIB)])
    @pytest.mark.parametrize("first", [0, 3, 200])
    def test_a_leak_in_forward_with_and_without_noise(self, batch_bytes, first):
        run = train(300, forward=leak(MIB, first=first), batch_bytes=batch_bytes)
        device = judged(run)
        assert device.verdict == "growing"
        assert device.bytes_per_step == pytest.approx(MIB, rel=0.01)
        assert device.rate.low <= MIB <= device.rate.high
        assert device.first_step == first
        (owner,) = device.owners
        assert (owner.phase, owner.size_bytes, owner.blocks_per_step) == ("forward", MIB, 1)
        assert owner.thread == 1

    @pytest.mark.parametrize("steps", [14, 40, 300])
    def test_a_small_leak_beside_a_large_workspace_made_in_the_first_step(self, steps):
        def both(run, step):
            if step == 0:
                run.keep("workspace", 8 * MIB)
            leak(16 << 10)(run, step)

        device = judged(train(steps, forward=both))
        assert device.verdict == "growing"
        assert device.bytes_per_step == pytest.approx(16 << 10, rel=0.01)
        (owner,) = device.owners
        assert (owner.size_bytes, owner.blocks_per_step) == (16 << 10, 1)

    def test_it_says_when_the_device_is_full(self):
        device = judged(train(300, forward=leak(MIB), capacity_bytes=GIB))
        # Parameters, state, gradients, two inputs, one batch, and what leaked.
        in_use = 16 + 32 + 16 + 1 + 8 + 300
        assert device.steps_until_full == 1024 - in_use
        assert device.headroom_bytes == (1024 - in_use) * MIB
        assert judged(train(300, forward=leak(MIB), capacity_bytes=None)).steps_until_full is None

    def test_two_leaks_at_once(self):
        def both(run, step):
            leak(3 * MIB)(run, step)
            run.keep(("list", step), 700)

        device = judged(train(100, after=leak(MIB, first=2), forward=both, batch_bytes=NOISE))
        assert [owner.phase for owner in device.owners] == ["forward", None]
        assert device.bytes_per_step == pytest.approx(4 * MIB + 1024, rel=0.01)
        assert device.owners[0].bytes_per_step == pytest.approx(3 * MIB + 1024, rel=0.01)
        assert device.owners[0].size_bytes == 3 * MIB

    def test_a_slow_one(self):
        device = judged(train(10_000, forward=leak(1024), batch_bytes=noise(0.5, base_bytes=GIB)))
        assert device.verdict == "growing"
        assert device.bytes_per_step == pytest.approx(1024, rel=0.01)
        assert device.first_step == 0

    def test_losses_in_a_list_count_as_the_allocator_counts_them(self):
        assert judged(train(40, forward=leak(4))).bytes_per_step == 512

    def test_one_block_every_tenth_step(self):
        device = judged(train(300, after=leak(10 * MIB, every=10), batch_bytes=NOISE))
        assert device.verdict == "growing"
        assert device.bytes_per_step == pytest.approx(MIB, rel=0.01)
        assert device.owners[0].blocks_per_step == pytest.approx(0.1)

    def test_beside_a_list_that_is_cleared(self):
        run = train(330, forward=cleared_every(50), after=leak(MIB), batch_bytes=NOISE)
        device = judged(run)
        assert device.verdict == "growing"
        assert device.bytes_per_step == pytest.approx(MIB, rel=0.01)

    def test_a_buffer_that_is_replaced_by_a_larger_one(self):
        device = judged(train(200, forward=growing_buffer(MIB)))
        assert device.verdict == "growing"
        assert device.bytes_per_step == pytest.approx(MIB, rel=0.01)
        assert device.owners[0].phase == "forward"
        assert device.owners[0].size_bytes is None

    def test_the_survivors_of_each_age_are_its_signature(self):
        device = judged(train(100, forward=leak(MIB)))
        ages = {(s.youngest, s.oldest): s.bytes_per_step for s in device.survivors}
        assert ages[32, 63] == ages[8, 15] == ages[1, 1] == MIB


class TestNoAlarm:
    @pytest.mark.parametrize(
        "run",
        [
            train(60),
            train(300, batch_bytes=NOISE),
            train(12, batch_bytes=NOISE),
            train(300, forward=cleared_every(50)),
            train(270, forward=cleared_every(50), batch_bytes=NOISE),
            train(149, forward=cleared_every(50)),
            train(300, forward=leak(MIB, last=150)),  # a cache that is full from then on
            train(200, forward=leak(MIB, last=150), batch_bytes=NOISE),
        ],
    )
    def test_stable(self, run):
        device = judged(run)
        assert device.verdict == "stable"
        assert device.bytes_per_step == 0
        assert device.owners == ()

    def test_a_cache_fills_before_the_steps_that_are_judged(self):
        device = judged(train(300, forward=leak(MIB, last=150)))
        assert device.from_step == pytest.approx(150, abs=3)

    def test_the_first_in_goes_out_first(self):
        def fifo(run, step):
            run.keep(("queue", step), MIB)
            if step >= 50:
                run.drop(("queue", step - 50))

        assert judged(train(120, forward=fifo, batch_bytes=NOISE)).verdict == "stable"

    def test_evaluation_and_checkpoints_every_few_steps(self):
        def evaluates(run, step):
            if step % 10 == 9:
                run.phase("eval").keep("eval", 400 * MIB)
                run.drop("eval")
                run.keep(("metric", step), MIB)
                if step > 10:
                    run.drop(("metric", step - 10))
            if step % 25 == 24:
                run.phase("checkpoint").keep("copy", 64 * MIB)
                run.drop("copy")

        assert judged(train(200, after=evaluates, batch_bytes=NOISE)).verdict == "stable"

    def test_gradient_accumulation(self):
        def accumulates(run, step):
            for micro in range(3):
                run.phase("forward").keep(("micro", micro), NOISE(3 * step + micro))
                run.phase("backward").drop(("micro", micro))
            run.phase("forward")

        assert judged(train(100, forward=accumulates)).verdict == "stable"

    def test_too_few_steps(self):
        device = judged(train(5, forward=leak(MIB)))
        assert (device.verdict, device.from_step, device.steps) == ("warming_up", None, 5)

    def test_a_cache_that_fills_ever_more_slowly(self):
        slower = train(300, forward=lambda run, step: run.keep(step, 20 * MIB // (step + 1)))
        assert judged(slower).verdict == "warming_up"

    @pytest.mark.parametrize("name", ["gpt2", "resnet"])
    def test_real_runs(self, name):
        device = judged(recorded.load(name)[0])
        assert device.verdict == "stable"
        assert (device.from_step or 0) < 10


class TestLargeSteps:
    @pytest.mark.parametrize("batch_bytes", [lambda step: MIB, NOISE])
    def test_one_after_which_more_stays(self, batch_bytes):
        once = leak(100 * MIB, first=150, last=151)
        device = judged(train(300, forward=once, batch_bytes=batch_bytes))
        assert device.verdict == "one_large_step"
        large = device.large_step
        assert (large.step, large.extra_bytes, large.kept) == (150, 100 * MIB, True)
        assert large.phase == "forward"

    def test_one_whose_peak_stands_out(self):
        run = train(100, batch_bytes=lambda step: 200 * MIB if step == 77 else 8 * MIB)
        device = judged(run)
        assert device.verdict == "one_large_step"
        assert (device.large_step.step, device.large_step.kept) == (77, False)
        assert device.large_step.extra_bytes == 192 * MIB


class TestReserved:
    def test_it_grows_and_nothing_else_does(self):
        run = train(300, batch_bytes=NOISE)
        device = judged(with_reserved(run, lambda step: 600 * MIB + step // 20 * 20 * MIB))
        assert device.verdict == "fragmentation"
        assert device.bytes_per_step == pytest.approx(MIB, rel=0.05)
        # Nothing but reserved memory decides how much longer.
        assert device.reserved_headroom_bytes == 16 * GIB - 880 * MIB
        assert device.steps_until_full == int(
            device.reserved_headroom_bytes / device.bytes_per_step
        )

    @pytest.mark.parametrize(
        "reserved",
        [
            lambda step: 600 * MIB,
            lambda step: 600 * MIB + 20 * MIB * min(step // 5, 10),  # warms up
            lambda step: 600 * MIB + (200 * MIB if step > 100 else 0),  # one batch
        ],
    )
    def test_it_has_warmed_up(self, reserved):
        assert judged(with_reserved(train(300, batch_bytes=NOISE), reserved)).verdict == "stable"

    def test_it_grows_with_what_is_in_use(self):
        run = train(300, forward=leak(MIB))
        assert judged(with_reserved(run, lambda step: (600 + step) * MIB)).verdict == "growing"


def test_steps_before_a_given_one_are_left_out():
    run = train(300, forward=leak(MIB)).trace()
    device = judged(run, from_step=100)
    assert (device.from_step, device.bytes_per_step, device.first_step) == (100, MIB, 0)
    assert judged(run, from_step=295).verdict == "warming_up"
    assert judged(run, from_step=1000).verdict == "warming_up"


def test_each_device_is_judged_for_itself():
    def second(run, step):
        run.keep(("other", step), 2 * MIB, device=1)

    growth = train(60, forward=second).trace().growth()
    assert [d.verdict for d in growth.devices] == ["stable", "growing"]
    assert growth.worst.device == 1
    assert growth.worst.bytes_per_step == 2 * MIB


def test_categories_are_told_if_they_are_known():
    trace = train(60, forward=leak(MIB)).trace()
    allocs = int(np.count_nonzero(trace.kind == Kind.ALLOC))
    categories = Categories(np.full(allocs, 5, np.uint8), np.zeros(allocs, np.uint8))
    growth = find_growth(trace, categories=categories)
    assert growth.worst.owners[0].category == "activation"
    # A leak in forward is one by the rules too, and what turns over is told apart.
    assert trace.growth().worst.owners[0].category == "activation"


def test_a_slice_has_the_categories_of_the_whole():
    trace = train(60, forward=leak(MIB)).trace()
    allocs = int(np.count_nonzero(trace.kind == Kind.ALLOC))
    by_size = np.where(trace.size_bytes[trace.kind == Kind.ALLOC] == MIB, 7, 1).astype(np.uint8)
    categories = Categories(by_size, np.zeros(allocs, np.uint8))
    growth = find_growth(trace.slice(steps=(20, 50)), categories=categories)
    assert growth.worst.owners[0].category == "temporary"
    assert growth.worst.owners[0].bytes_per_step == MIB


def test_no_more_than_16384_steps_are_told_one_by_one():
    steps = 40_000
    columns = {
        "time_ns": np.arange(steps),
        "kind": np.ones(steps, int),
        "address": np.arange(steps) * 512,
        "size_bytes": np.full(steps, 512),
        "stream": np.zeros(steps, int),
        "device": np.zeros(steps, int),
        "thread": np.ones(steps, int),
        "step": np.arange(steps),
    }
    device = judged(Trace.from_events(columns))
    assert len(device.retained.number) <= 16_384
    gaps = np.unique(np.diff(device.retained.number))
    assert gaps.tolist() == [4]
    np.testing.assert_array_equal(
        device.retained.size_bytes[:, 0], 512 * (device.retained.number + 1)
    )
    assert device.bytes_per_step == pytest.approx(512)
    assert device.steps == steps


@dataclass
class Slow:
    """Every block and every step, one by one."""

    retained: list[dict[tuple[int, str | None], int]]
    live: dict[tuple[int, int], tuple[int, int, str | None]]  # size, birth, phase
    freed: dict[int, int]  # age -> bytes


def slow_retention(trace: Trace) -> Slow:
    slow = Slow([], {}, {})
    step = 0
    skips = None
    for batch in trace.chunks():
        if skips is None:
            skips = begins_at_step(batch)
        for i in range(len(batch)):
            kind = batch.raw["kind"][i]
            key = (int(batch.raw["device"][i]), int(batch.raw["address"][i]))
            if kind in (Kind.ALLOC, Kind.FREE) and key in slow.live:
                size, birth, _ = slow.live.pop(key)
                slow.freed[step - birth] = slow.freed.get(step - birth, 0) + size
            if kind == Kind.ALLOC:
                size = -(-int(batch.raw["size_bytes"][i]) // 512) * 512
                slow.live[key] = (size, step, trace.phase_name(int(batch.phase[i])))
            if kind == Kind.STEP:
                if skips:
                    skips = False
                    continue
                row: dict[tuple[int, str | None], int] = {}
                for (device, _), (size, _, phase) in slow.live.items():
                    row[device, phase] = row.get((device, phase), 0) + size
                slow.retained.append(row)
                step += 1
    return slow


@given(event_columns(), st.integers(1, 30))
@settings(max_examples=60)
def test_what_is_kept_equals_a_slow_reference(columns, batch_records):
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES)
    object.__setattr__(trace._source, "batch_records", batch_records)
    finder = RetentionFinder(trace)
    feed_lines(trace, finder)
    slow = slow_retention(trace)
    freed = np.zeros(40, np.int64)
    found = finder.finish()
    for kept in found:
        assert len(kept.retained_bytes) == len(slow.retained)
        for i, row in enumerate(slow.retained):
            for group, size in zip(kept.groups, kept.retained_bytes[i], strict=True):
                assert size == row.get((kept.device, group.phase), 0)
            assert kept.retained_bytes[i].sum() == sum(
                size for (device, _), size in row.items() if device == kept.device
            )
        mine = [block for (device, _), block in slow.live.items() if device == kept.device]
        for i in range(len(slow.retained)):
            for group, size in zip(kept.groups, kept.survivor_bytes[i], strict=True):
                assert size == sum(s for s, birth, p in mine if (birth, p) == (i, group.phase))
        assert sorted(kept.live["size_bytes"].tolist()) == sorted(size for size, _, _ in mine)
        freed += kept.freed_bytes.sum(axis=0)
    expected = np.zeros(40, np.int64)
    for age, size in slow.freed.items():
        if age:
            expected[age.bit_length() - 1] += size
    np.testing.assert_array_equal(freed, expected)


def test_the_result_as_json():
    growth = train(60, forward=leak(MIB)).trace().growth()
    result = json.loads(json.dumps(growth.to_dict()))
    assert (result["verdict"], result["bytes_per_step"]) == ("growing", MIB)
    assert result["devices"][0]["owners"][0]["phase"] == "forward"


@given(st.lists(st.sampled_from(["a", "b", None, "c"]), min_size=1, max_size=9), st.integers(0, 3))
def test_the_groups_of_a_phase_are_put_together(phases, rows):
    columns = len(phases)
    kept = DeviceRetention(
        device=0,
        groups=tuple(BirthGroup(phase, str(i)) for i, phase in enumerate(phases)),
        ordinal=np.arange(rows),
        retained_bytes=np.arange(rows * columns).reshape(rows, columns),
        survivor_bytes=np.arange(rows * columns).reshape(rows, columns) * 3,
        freed_bytes=np.arange(columns * 2).reshape(columns, 2),
        live={"group": np.arange(columns)},
    )
    merged = kept.by_phase()
    assert [group.phase for group in merged.groups] == list(dict.fromkeys(phases))
    assert [merged.groups[i].phase for i in merged.live["group"]] == phases
    for i, group in enumerate(merged.groups):
        mine = [j for j, phase in enumerate(phases) if phase == group.phase]
        assert merged.retained_bytes[:, i].tolist() == kept.retained_bytes[:, mine].sum(1).tolist()
        assert merged.survivor_bytes[:, i].tolist() == kept.survivor_bytes[:, mine].sum(1).tolist()
        assert merged.freed_bytes[i].tolist() == kept.freed_bytes[mine].sum(0).tolist()
