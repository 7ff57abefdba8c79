"""GIVEN two runs, WHEN they are compared, THEN every difference is there, and nothing else."""

from __future__ import annotations

import collections
import json
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from launch import python
from synthetic import MIB, PHASE_NAMES, TraceBuilder, event_columns

import gpumemtrace
from gpumemtrace.analysis import allocation_groups
from gpumemtrace.analysis.allocation_groups import AllocationGroup, AllocationGroupFinder, GroupUse
from gpumemtrace.analysis.compare import compare_traces
from gpumemtrace.analysis.compare_wording import describe_difference
from gpumemtrace.analysis.lines import feed_lines
from gpumemtrace.cli.main import main
from gpumemtrace.schema import Kind
from gpumemtrace.trace import Trace


@given(columns=event_columns(), batch_records=st.integers(1, 40))
def test_groups_are_those_of_a_plain_count(columns, batch_records):
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES)
    object.__setattr__(trace._source, "batch_records", batch_records)
    finder = AllocationGroupFinder(trace)
    feed_lines(trace, finder)
    names = ("kind", "device", "phase", "size_bytes", "step")
    steps = collections.defaultdict(list)
    for kind, device, phase, size, step in zip(*(columns[n].tolist() for n in names), strict=True):
        if kind == Kind.ALLOC:
            name = PHASE_NAMES[phase] if phase >= 0 else None
            steps[AllocationGroup(device, name, size)].append(step)
    expected = {group: GroupUse(len(of), len(set(of))) for group, of in steps.items()}
    assert finder.finish() == expected


def test_groups_of_many_batches_add_up(monkeypatch):
    monkeypatch.setattr(allocation_groups, "_MOST_ROWS", 8)
    builder = TraceBuilder()
    for i in range(1000):
        builder.alloc(i * MIB, 512 * (1 + i % 7))
    trace = builder.trace(batch_records=10)
    finder = AllocationGroupFinder(trace)
    feed_lines(trace, finder)
    counts = {group.size_bytes: use.count for group, use in finder.finish().items()}
    assert counts == {512 * (1 + k): len(range(k, 1000, 7)) for k in range(7)}


def run(sizes: list[int], *, step_ms: int, script: str = "train", batch: int = 8) -> Trace:
    """Three steps; each allocates ``sizes`` in forward and frees them in backward."""
    builder = TraceBuilder(run_record={"script": script, "argv": ["--batch", str(batch)]})
    for step in range(3):
        builder.phase("forward")
        for i, size in enumerate(sizes):
            builder.alloc((i + 1) << 32, size)
        builder.phase("backward", after_ns=step_ms * 1_000_000)
        for i in range(len(sizes)):
            builder.free((i + 1) << 32)
        builder.phase("").step(step + 1)
    return builder.trace()


def test_less_memory_but_slower():
    a = run([10 * MIB, 6 * MIB, 4 * MIB], step_ms=100)
    b = run([10 * MIB, 2 * MIB], step_ms=108, batch=4)
    found = compare_traces(a, b)
    (device,) = found.devices
    assert device.peaks["allocated"].change == -8 * MIB
    assert device.step_peak_bytes.share == pytest.approx(-0.4)
    assert describe_difference(found, device) == (
        "cuda:0: B uses less memory: 12.0 MiB allocated at the peak instead of 20.0 MiB (-40.0%), "
        "but a step takes 8% longer."
    )
    assert [(g.size_bytes, g.a_per_step, g.b_per_step, g.phase) for g in device.groups] == [
        (6 * MIB, 1, 0, "forward"),
        (4 * MIB, 1, 0, "forward"),
        (2 * MIB, 0, 1, "forward"),
    ]
    assert sum(d.change or 0 for d in device.category_bytes.values()) == -8 * MIB
    assert device.growth.a == device.growth.b == 0
    forward, backward = device.phases
    assert (forward.name, backward.name) == ("forward", "backward")
    assert forward.kept_bytes.change == -8 * MIB
    assert backward.kept_bytes.change == 8 * MIB
    assert [(d.key, d.a, d.b) for d in found.record] == [
        ("argv", ["--batch", "8"], ["--batch", "4"])
    ]


def test_a_run_against_itself_differs_in_nothing():
    trace = run([MIB, 3 * MIB], step_ms=5)
    found = compare_traces(trace, trace)
    (device,) = found.devices
    assert not device.groups and not found.record
    assert {d.change for d in device.peaks.values()} <= {0, None}
    assert "B uses as much memory as A: 4.0 MiB" in describe_difference(found, device)


def test_what_only_one_of_them_has():
    a = run([MIB], step_ms=5)
    b = TraceBuilder().phase("rollout").alloc(512, 2 * MIB, device=1).trace()
    found = compare_traces(a, b)
    assert [device.device for device in found.devices] == [0, 1]
    assert (
        describe_difference(found, found.devices[1]) == "cuda:1: only B allocated anything there."
    )
    assert [phase.name for phase in found.devices[1].phases if phase.time_s.b is not None] == [
        "rollout"
    ]
    assert found.devices[1].peaks["allocated"].change is None


class TestOutOfMemory:
    """GIVEN a run whose requests failed, THEN that is the first thing said."""

    def failing(self, *, error: str | None = None, times: int = 1) -> Trace:
        builder = TraceBuilder(footer={} if error is None else {"error": {"type": error}})
        builder.phase("forward").alloc(1 << 32, 4 * MIB).step(1)
        for _ in range(times):
            builder.add(Kind.ALLOC_FAILED, size_bytes=3 * MIB)
        return builder.trace()

    @pytest.mark.parametrize(
        ("error", "times", "clause"),
        [
            ("torch.OutOfMemoryError", 1, "; it ended there)"),
            (None, 1, "; it went on)"),
            ("ValueError", 2, "; 1 request failed before it; it went on)"),
            ("ValueError", 3, "; 2 requests failed before it; it went on)"),
        ],
    )
    def test_the_sentence_begins_with_it(self, error, times, clause):
        a, b = run([10 * MIB], step_ms=1), self.failing(error=error, times=times)
        found = compare_traces(a, b)
        (device,) = found.devices
        assert describe_difference(found, device).startswith(
            f"cuda:0: B ran out of memory (3.0 MiB in forward, step 1{clause}; B uses less memory: "
        )
        told = found.to_dict()["devices"][0]["out_of_memory"]
        assert told["a"] is None
        assert told["b"]["failed"] == times and told["b"]["last"]["step"] == 1
        assert (told["b"]["error"] is not None) == (error == "torch.OutOfMemoryError")

    def test_of_both(self):
        trace = self.failing()
        found = compare_traces(trace, trace)
        sentence = describe_difference(found, found.devices[0])
        assert sentence.count("ran out of memory") == 2

    def test_of_a_part_before_it_nothing_is_said(self):
        trace = self.failing(error="torch.OutOfMemoryError")
        found = compare_traces(trace.slice(steps=(0, 1)), trace.slice(steps=(1, 2)))
        assert [one is None for one in found.devices[0].out_of_memory] == [True, False]

    def test_of_a_library_that_does_not_ask_pytorch(self):
        error = {"type": "DistBackendError", "message": "NCCL error: out of memory"}
        trace = TraceBuilder(footer={"error": error}).alloc(1 << 32, MIB).step(1).trace()
        found = compare_traces(trace, run([MIB], step_ms=1))
        assert describe_difference(found, found.devices[0]).startswith(
            "cuda:0: A ran out of memory (it ended with DistBackendError: NCCL error: out of "
        )


@pytest.mark.parametrize(("which", "words"), [("A", "A is"), ("B", "B is"), ("AB", "A and B are")])
def test_times_of_a_simulated_run_are_not_compared(which, words, tmp_path, capsys):
    sides = []
    for name, step_ms in (("A", 10), ("B", 20)):
        trace = run([MIB], step_ms=step_ms)
        if name in which:
            trace.run_record["simulated"] = {"gpu": "H100"}
        trace.save(tmp_path / f"{name}.gmt")
        sides.append(str(tmp_path / f"{name}.gmt"))
    assert main(["compare", *sides]) == 0
    out = capsys.readouterr().out
    assert f"Step times are not compared: {words} simulated" in out
    assert "longer" not in out and "step time" not in out and "time each" not in out
    assert main(["compare", *sides, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["step_time_s"] is None and told["no_times"].startswith(words)
    assert {phase["time_s"] for phase in told["devices"][0]["phases"]} == {None}


class TestSizesThatComeAndGo:
    """GIVEN batches of variable length, THEN their sizes are told together, others one by one."""

    def training(self, lengths: list[int], *, more: tuple[int, ...] = ()) -> Trace:
        builder = TraceBuilder()
        for step, length in enumerate(lengths):
            builder.phase("forward").alloc(1 << 40, length).alloc(2 << 40, 2 * length)
            for i, size in enumerate((7 * MIB, *more)):
                builder.alloc((3 + i) << 40, size)
            for i in range(3 + len(more)):
                builder.free((1 + i) << 40)
            builder.phase("").step(step + 1)
        return builder.trace()

    def test_they_are_one_group_of_a_size_class(self):
        a = self.training([MIB + 1024 * i for i in range(1, 101)])
        b = self.training([MIB + 1000 * i for i in range(1, 51)], more=(MIB,))
        groups = compare_traces(a, b).devices[0].groups
        assert len(groups) == 3
        assert (groups[0].size_bytes, groups[0].sizes, groups[0].b_per_step) == (MIB, 1, 1)
        of_a, of_b = sum(range(1, 101)) * 1024 / 100, sum(range(1, 51)) * 1000 / 50
        for group, factor in zip(groups[1:], (2, 1), strict=True):
            assert (group.phase, group.sizes) == ("forward", 150)
            assert group.size_bytes == factor * (MIB + 1000)
            assert group.largest_size_bytes == factor * (MIB + 102400)
            assert (group.a_per_step, group.b_per_step) == (pytest.approx(1), pytest.approx(1))
            assert group.change_bytes == pytest.approx(factor * (of_b - of_a))

    def test_a_size_that_one_step_makes_many_times_is_one_that_comes_and_goes(self):
        def training(lengths):
            builder = TraceBuilder().phase("forward")
            for step, length in enumerate(lengths):
                for layer in range(12):
                    builder.alloc((1 + layer) << 40, length)
                for layer in range(12):
                    builder.free((1 + layer) << 40)
                builder.step(step + 1)
            return builder.trace()

        a = training([MIB + 1024 * i for i in range(1, 21)])
        b = training([2 * MIB - 1024 * i for i in range(20)])
        (group,) = compare_traces(a, b).devices[0].groups
        assert (group.sizes, group.a_per_step, group.b_per_step) == (40, 12, 12)

    def test_a_few_are_told_one_by_one(self):
        a = self.training([MIB] * 10)
        b = self.training([MIB] * 6 + [MIB + 512 * i for i in range(1, 5)])
        groups = compare_traces(a, b).devices[0].groups
        assert {group.sizes for group in groups} == {1}
        assert len(groups) == 2 * 5

    def test_single_steps_are_told_size_by_size(self):
        trace = self.training([MIB + 512 * i for i in range(20)])
        found = compare_traces(trace.slice(steps=(1, 2)), trace.slice(steps=(2, 3)))
        assert [(g.size_bytes, g.sizes) for g in found.devices[0].groups] == [
            (2 * MIB + 2048, 1),
            (2 * MIB + 1024, 1),
            (MIB + 1024, 1),
            (MIB + 512, 1),
        ]

    def test_the_table_says_how_many_sizes(self, tmp_path, capsys):
        self.training([MIB + 1024 * i for i in range(1, 41)]).save(tmp_path / "a.gmt")
        self.training([MIB]).save(tmp_path / "b.gmt")
        main(["compare", str(tmp_path / "a.gmt"), str(tmp_path / "b.gmt")])
        assert "1.0 to 1.0 MiB (40 sizes)" in capsys.readouterr().out


def test_two_steps_of_one_run(tmp_path, capsys):
    builder = TraceBuilder()
    builder.phase("forward").alloc(1 << 32, MIB).step(1)
    builder.alloc(2 << 32, 5 * MIB).alloc(3 << 32, MIB).step(2)
    path = tmp_path / "run.gmt"
    builder.trace().save(path)
    assert main(["compare", str(path), "--steps-a", "0", "--steps-b", "1", "--json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert [(g["size_bytes"], g["phase"], g["change_bytes"]) for g in device["groups"]] == [
        (5 * MIB, "forward", 5 * MIB)
    ]
    assert main(["compare", str(path), "--steps-a", "0", "--steps-b", "1"]) == 0
    assert "5.0 MiB  forward" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give two traces, or one with --steps-a and --steps-b"),
        (["--steps-a", "0", "--steps-b", "77"], "no step in 77:78"),
    ],
)
def test_what_can_not_be_compared_is_said(tmp_path, capsys, arguments, message):
    path = tmp_path / "run.gmt"
    run([MIB], step_ms=1).save(path)
    assert main(["compare", str(path), *arguments]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.simgpu
def test_checkpointing_is_seen_as_what_torch_counts(tmp_path: Path) -> None:
    """The difference of the peaks is that of `max_memory_allocated`, to the byte."""
    (tmp_path / "train.py").write_text(
        textwrap.dedent("""
            import sys, torch
            from torch.utils.checkpoint import checkpoint
            def make_block():
                layers = torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)
                return torch.nn.Sequential(*layers)
            def apply(block, x):
                return checkpoint(block, x, use_reentrant=False)
            if sys.argv[1] == "no":
                apply = lambda block, x: block(x)
            blocks = torch.nn.ModuleList(make_block() for _ in range(6)).cuda()
            optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1)
            for _ in range(4):
                x = torch.randn(2048, 256, device="cuda")
                for block in blocks:
                    x = apply(block, x)
                x.sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            print(torch.cuda.max_memory_allocated())
        """)
    )
    peaks, traces = [], []
    for used in ("no", "yes"):
        trace = tmp_path / f"{used}.gmt"
        ran = python(
            "-m", "gpumemtrace", "run", "-q", "-o", str(trace), "train.py", used, cwd=tmp_path
        )
        peaks.append(int(ran.stdout))
        traces.append(gpumemtrace.open(trace))
    found = compare_traces(*traces)
    (device,) = found.devices
    assert device.peaks["allocated"].change == peaks[1] - peaks[0] < 0
    record = {entry.key: (entry.a, entry.b) for entry in found.record}
    assert [side[-1] for side in record["argv"]] == ["no", "yes"]
    assert record["training.activation_checkpointing"] == (False, True)
    assert np.sign(device.groups[0].change_bytes) == 1  # what is recomputed is allocated again
