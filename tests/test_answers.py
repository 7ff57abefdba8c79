"""What the summary tells beyond its figures: what the peak is made of, and what would lower it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from growth_runs import train
from hypothesis import given
from slow_gaps import MS, sample
from synthetic import MIB, PHASE_NAMES, TraceBuilder, event_columns

from gpumemtrace.analysis.advice import Advice, Bottleneck, describe_bottleneck
from gpumemtrace.analysis.answers import DeviceAnswers, find_answers
from gpumemtrace.analysis.categories import CATEGORY_NAMES, find_categories
from gpumemtrace.analysis.peak_live_set import find_peak_live_set
from gpumemtrace.analysis.summary import summarize
from gpumemtrace.cli.main import main
from gpumemtrace.schema import Category, Kind
from gpumemtrace.trace import Trace


def slow_highest(trace: Trace, device: int) -> tuple[dict[str, int], dict[str, int]]:
    """The highest sum without each category, and with half of it, by plain replay."""
    category = find_categories(trace).category
    live: dict[int, tuple[str, int]] = {}
    without = dict.fromkeys(CATEGORY_NAMES, 0)
    with_half = dict.fromkeys(CATEGORY_NAMES, 0)
    alloc = -1
    rows = zip(trace.kind, trace.address, trace.size_bytes, trace.device, strict=True)
    for kind, address, size, on in rows:
        alloc += kind == Kind.ALLOC
        key = (int(on), int(address))
        live.pop(key, None)
        if kind == Kind.ALLOC:
            live[key] = (category[alloc], -(-int(size) // 512) * 512)
        if kind != Kind.ALLOC or on != device:
            continue
        sums = dict.fromkeys(CATEGORY_NAMES, 0)
        for (place, _), (name, bytes_) in live.items():
            sums[name] += bytes_ if place == device else 0
        total = sum(sums.values())
        for name in CATEGORY_NAMES:
            without[name] = max(without[name], total - sums[name])
            with_half[name] = max(with_half[name], total - sums[name] // 2)
    return without, with_half


@given(columns=event_columns())
def test_bounds_are_those_of_a_plain_replay(columns):
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES)
    for device in find_answers(trace).devices:
        without, with_half = slow_highest(trace, device.summary.device)
        for i, name in enumerate(CATEGORY_NAMES):
            assert device.composition.highest_without[i] == without[name], name
            assert device.composition.highest_with_half[i] == with_half[name], name


@given(columns=event_columns())
def test_the_peak_is_the_sum_of_its_parts_as_every_command_tells_it(columns):
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES)
    answers = find_answers(trace)
    summary = summarize(trace)
    assert answers.summary.to_dict() == summary.to_dict()
    for device in answers.devices:
        peak = find_peak_live_set(trace, device=device.summary.device)
        assert sum(device.category_bytes.values()) + device.not_seen_bytes == peak.size_bytes
        groups = peak.group_by("category")
        named = {g.name: g.size_bytes for g in groups if g.size_bytes and g.name in CATEGORY_NAMES}
        assert named == device.category_bytes
        assert np.array_equal(device.composition.category_bytes, peak.steps.category_bytes)
        assert np.array_equal(device.composition.phase_bytes, peak.steps.phase_bytes)


def tagged(builder: TraceBuilder, address: int, size: int, category: Category) -> None:
    builder.alloc(address, size)
    builder.add(Kind.TAG, address=address, size_bytes=size, stream=int(category))


def training(
    *, optimizer_temporaries: int = 0, reserved: int = 0, kept: int = 0, **record: object
) -> Trace:
    """3 steps; parameters 8, state 16, activations 12 MiB, gradients 8 MiB in backward.

    ``kept``: bytes of activations of each step that nobody lets go of.
    """
    builder = TraceBuilder(run_record=dict(record))
    builder.phase("init")
    tagged(builder, 1 << 40, 8 * MIB, Category.PARAMETER)
    tagged(builder, 2 << 40, 16 * MIB, Category.OPTIMIZER_STATE)
    if reserved:
        builder.stats(24 * MIB, 24 * MIB, 24 * MIB, reserved)
    for step in range(3):
        builder.phase("forward")
        tagged(builder, 3 << 40, 12 * MIB, Category.ACTIVATION)
        if kept:
            tagged(builder, (6 + step) << 40, kept, Category.ACTIVATION)
        builder.phase("backward")
        tagged(builder, 4 << 40, 8 * MIB, Category.GRADIENT)
        builder.free(3 << 40)
        builder.phase("optimizer")
        if optimizer_temporaries:
            tagged(builder, 5 << 40, optimizer_temporaries, Category.TEMPORARY)
            builder.free(5 << 40)
        builder.free(4 << 40).phase("").step(step + 1)
    return builder.trace()


def only(trace: Trace) -> DeviceAnswers:
    (device,) = find_answers(trace).devices
    return device


def saves(device: DeviceAnswers, words: str) -> int:
    (found,) = (advice for advice in device.advice if words in advice.change)
    return found.saves_bytes


def test_a_saving_ends_where_the_next_highest_instant_is():
    device = only(training())
    assert device.category_bytes == {
        "parameter": 8 * MIB,
        "optimizer_state": 16 * MIB,
        "activation": 12 * MIB,
        "gradient": 8 * MIB,
    }
    assert device.bottleneck is not None
    assert device.bottleneck.name == "optimizer_state"
    assert device.bottleneck.share == pytest.approx(16 / 44)
    # Without activations the peak is 32 MiB, all else; without gradients it is forward's 36.
    assert saves(device, "checkpoint") == 12 * MIB
    assert saves(device, "halve the batch") == 6 * MIB
    assert saves(device, "train fewer") == 16 * MIB
    assert saves(device, "8 bits") == 12 * MIB
    assert saves(device, "shard the optimizer") == 8 * MIB
    assert saves(device, "shard the gradients") == 4 * MIB
    assert [a.saves_bytes for a in device.advice] == sorted(
        (a.saves_bytes for a in device.advice), reverse=True
    )
    # The optimizer's own peak, 42 MiB, is what is left when activations shrink.
    device = only(training(optimizer_temporaries=10 * MIB))
    assert saves(device, "checkpoint") == 2 * MIB


def test_checkpointing_does_not_save_what_earlier_steps_kept():
    device = only(training(kept=5 * MIB))
    assert device.category_bytes["activation"] == 12 * MIB + 3 * 5 * MIB
    assert saves(device, "checkpoint") == 12 * MIB + 5 * MIB
    (advice,) = (a for a in device.advice if "checkpoint" in a.change)
    assert "27.0 MiB at the peak, 10.0 MiB of it kept from earlier steps" in advice.evidence


def test_temporaries_of_the_optimizer_matter_where_they_set_the_peak():
    device = only(training(optimizer_temporaries=20 * MIB))
    assert saves(device, "fused") == 8 * MIB  # 52 -> 44, the peak of backward
    assert not any("fused" in a.change for a in only(training()).advice)


def test_ranks_share_out_among_as_many_as_there_are():
    device = only(training(world_size=8))
    assert saves(device, "shard the optimizer") == 14 * MIB


@pytest.mark.parametrize(
    ("settings", "is_advised"), [(None, True), ("expandable_segments:True", False)]
)
def test_a_large_cache_is_the_bottleneck(settings, is_advised):
    device = only(training(reserved=100 * MIB, allocator={"settings": settings}))
    assert device.bottleneck is not None and device.bottleneck.name == "cache"
    assert device.bottleneck.size_bytes == 56 * MIB
    found = [a for a in device.advice if "expandable_segments" in a.change]
    assert [a.saves_bytes for a in found] == ([56 * MIB] if is_advised else [])


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [
        (MIB, "what the allocator keeps cached, 1.0 MiB (25% of the allocated peak)"),
        (5 * MIB, "what the allocator keeps cached, 5.0 MiB (125% of the allocated peak)"),
        (20 * MIB, "what the allocator keeps cached, 20.0 MiB (5 times as much as the allocated "),
    ],
)
def test_the_bottleneck_is_a_part_of_the_allocated_peak_whatever_it_is(size_bytes, words):
    found = Bottleneck("cache", size_bytes, size_bytes / (4 * MIB))
    assert describe_bottleneck(found).startswith(words)


def test_what_saves_nothing_is_not_advised():
    trace = TraceBuilder().phase("init").alloc(1 << 40, MIB).trace()
    assert not any(isinstance(a, Advice) and a.saves_bytes == 0 for a in only(trace).advice)


def test_a_slice_is_answered_with_what_the_whole_trace_knows():
    trace = training()
    part = only(trace.slice(steps=(1, 2)))
    assert part.category_bytes == only(trace).category_bytes
    assert part.not_seen_bytes == 0


def test_on_the_screen_and_as_json(tmp_path, capsys):
    path = tmp_path / "run.gmt"
    training(reserved=48 * MIB).save(path)
    assert main(["summary", str(path)]) == 0
    out = capsys.readouterr().out
    assert "At the allocated peak: optimizer state 16.0 MiB (36%), activation 12.0 MiB (27%)" in out
    assert "Bottleneck: optimizer state, 16.0 MiB (36% of the allocated peak).\n" in out
    assert "Growth: still warming up" in out or "Growth: " in out
    assert "12.0 MiB  12.0 MiB at the peak" in out
    assert main(["summary", "--json", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["categories_at_peak"]["activation"] == 12 * MIB
    assert found["growth"].keys() == {"verdict", "bytes_per_step"}
    assert found["peak"]["phase"] == "backward"
    assert found["times"]["steps"] == 3
    (device,) = found["devices"]
    assert device["advice"][0].keys() == {"about", "change", "line", "saves_bytes", "evidence"}
    assert sum(device["categories_at_peak"].values()) == device["peak_bytes"]["allocated"]


def test_what_lies_outside_and_the_headroom(tmp_path, capsys):
    builder = TraceBuilder().phase("forward").alloc(512, 20 * MIB).stats(*[20 * MIB] * 3, 30 * MIB)
    sample(builder, used=100 * MIB, own=60 * MIB, others=35 * MIB)
    builder.alloc(30 * MIB, MIB, after_ns=40 * MS).add(Kind.ALLOC_FAILED, size_bytes=MIB)
    builder.stats(10 * MIB, 9 * MIB, 21 * MIB, 30 * MIB)
    builder.trace().save(tmp_path / "a.gmt")
    assert main(["summary", str(tmp_path / "a.gmt")]) == 0
    out = capsys.readouterr().out
    assert "Outside PyTorch at the peak: 30.0 MiB; other processes: 35.0 MiB.\n" in out
    assert (
        "Least free on the device: 900.0 MiB in forward, step 0; never less than 909.0 MiB" in out
    )
    assert "requested above allocated in 1 record, by 1.0 MiB at most: counters.\n" in out
    assert "gpumemtrace oom" in out
    assert main(["summary", "--json", str(tmp_path / "a.gmt")]) == 0
    gaps = json.loads(capsys.readouterr().out)["devices"][0]["gaps"]
    assert gaps["at_peak"]["outside"] == gaps["outside"]["at_first_bytes"] == 30 * MIB
    assert gaps["lowest"]["device_free"]["bytes"] == 900 * MIB
    assert [found["pair"] for found in gaps["order_breaks"]] == ["requested>allocated"]


def test_what_grows_is_the_first_advice_and_as_much_as_it_grew():
    def leak(run, step):
        run.keep(("leak", step), MIB)

    answers = find_answers(train(60, forward=leak, unfinished=False).trace())
    (device,) = answers.devices
    assert device.growth.verdict == "growing"
    first = device.advice[0]
    kept = device.summary.highest.step - device.growth.first_step
    assert (first.about, first.saves_bytes) == ("growth", kept * MIB)
    assert "1.0 MiB a step" in first.evidence and "forward" in first.evidence
    (steady,) = find_answers(train(60).trace()).devices
    assert all(advice.about != "growth" for advice in steady.advice)
