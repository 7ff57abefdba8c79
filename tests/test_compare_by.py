"""GIVEN runs that tell modules, WHEN they are compared by them, THEN the differences have names."""

from __future__ import annotations

import collections
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from owned_traces import transformer
from simgpu import run_simulated
from synthetic import MIB, PHASE_NAMES, TraceBuilder, event_columns

from gpumemtrace.analysis.allocation_groups import AllocationGroup, AllocationGroupFinder, GroupUse
from gpumemtrace.analysis.compare import compare_traces
from gpumemtrace.analysis.lines import feed_lines
from gpumemtrace.cli.main import main
from gpumemtrace.schema import Kind
from gpumemtrace.trace import Trace

LINE = ("/code/model.py", 5, "forward")
EXTRA = ("/code/model.py", 6, "forward")


@given(columns=event_columns(), data=st.data())
def test_groups_are_those_of_a_plain_count(columns, data) -> None:
    count = len(columns["kind"])
    columns["site"] = np.array(
        data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)), np.uint32
    )
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES, module_names=["a", "b"])
    object.__setattr__(trace._source, "batch_records", data.draw(st.integers(1, 40)))
    finder = AllocationGroupFinder(trace, by="module")
    feed_lines(trace, finder)
    names = ("kind", "device", "phase", "size_bytes", "site", "step")
    steps = collections.defaultdict(list)
    for kind, device, phase, size, site, step in zip(
        *(columns[n].tolist() for n in names), strict=True
    ):
        if kind == Kind.ALLOC:
            name = PHASE_NAMES[phase] if phase >= 0 else None
            owner = ("no module", "a", "b")[site]
            steps[AllocationGroup(device, name, size, owner)].append(step)
    expected = {group: GroupUse(len(of), len(set(of))) for group, of in steps.items()}
    assert finder.finish() == expected


def two_batches() -> TraceBuilder:
    """The second step has another batch in one module, and a block that the first has not."""
    builder = TraceBuilder()
    fc = builder.site("fc", LINE, root="Net")
    head = builder.site("head", EXTRA, root="Net")
    for step, size in enumerate((2 * MIB, 3 * MIB)):
        builder.phase("forward").alloc(1 << 30, size, site=fc)
        if step == 1:
            builder.alloc(2 << 30, MIB, site=head).free(2 << 30)
        builder.free(1 << 30).phase("").step(step + 1)
    return builder


@pytest.mark.parametrize(
    ("by", "fc", "head"),
    [("module", "fc", "head"), ("site", "model.py:5 forward", "model.py:6 forward")],
)
def test_the_second_batch_against_the_first(by, fc, head, tmp_path: Path, capsys) -> None:
    """C103."""
    trace = two_batches().trace()
    (device,) = compare_traces(trace.slice(steps=(0, 1)), trace.slice(steps=(1, 2)), by=by).devices
    found = {(g.phase, g.owner, g.size_bytes, g.a_per_step, g.b_per_step) for g in device.groups}
    assert found == {
        ("forward", fc, 2 * MIB, 1, 0),
        ("forward", fc, 3 * MIB, 0, 1),
        ("forward", head, MIB, 0, 1),
    }
    assert {n: (d.a, d.b) for n, d in device.group_bytes.items()} == {
        fc: (2 * MIB, 3 * MIB),
        head: (0, MIB),
    }
    path = str(tmp_path / "run.gmt")
    trace.save(path)
    parts = ["--steps-a", "0:1", "--steps-b", "1:2"]
    assert main(["compare", path, *parts, "--by", by]) == 0
    said = capsys.readouterr().out
    assert f"at the peak, by {'module' if by == 'module' else 'line'}" in said
    rows = [line for line in said.splitlines() if line.rstrip().endswith(head)]
    assert any("1.0 MiB" in row and "+1.0 MiB" in row for row in rows)
    assert main(["compare", "--json", path, *parts, "--by", by]) == 0
    told = json.loads(capsys.readouterr().out)["devices"][0]
    assert told["at_peak_by"]["groups"][head]["change"] == MIB
    assert {group["owner"] for group in told["groups"]} == {fc, head}


@pytest.mark.simgpu
def test_the_second_batch_of_a_model_against_the_first(tmp_path: Path, capsys) -> None:
    """C103."""
    code = """
import torch, gpumemtrace
from torch import nn
net = nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 10))
with gpumemtrace.install("t.gmt", modules=True):
    net.cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for rows in (700, 700, 700, 900):
        net(torch.ones(rows, 100, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
    run_simulated(code, cwd=tmp_path)
    parts = ["--steps-a", "2", "--steps-b", "3", "--by", "module"]
    assert main(["compare", "--json", str(tmp_path / "t.gmt"), *parts]) == 0
    groups = json.loads(capsys.readouterr().out)["devices"][0]["groups"]
    found = {
        (g["phase"], g["owner"], g["size_bytes"]): g["a_per_step"] - g["b_per_step"] for g in groups
    }
    expected = {
        (phase, owner, 4 * rows * width): number if rows == 700 else -number
        for rows in (700, 900)
        for phase, owner, width, number in (
            ("forward", "0", 300, 1),
            ("forward", "1", 300, 1),
            ("forward", "2", 10, 1),
            ("backward", "1", 300, 1),
            ("backward", "2", 300, 1),
        )
    }
    assert expected.items() <= found.items()
    # What does not depend on the batch is in both, and not listed.
    assert not [size for _, _, size in found if size in (4 * 100 * 300, 4 * 300 * 10)]


@pytest.mark.parametrize("by", ["category", "phase", "module", "site"])
def test_groups_add_up_to_both_peaks(by) -> None:
    a, b = transformer(2).trace(), transformer(3).trace()
    (device,) = compare_traces(a, b, by=by).devices
    for side, trace in (("a", a), ("b", b)):
        sizes = [getattr(size, side) for size in device.group_bytes.values()]
        assert sum(sizes) == trace.peak().size_bytes
    changes = [abs(size.change) for size in device.group_bytes.values()]
    assert changes == sorted(changes, reverse=True)


def test_a_side_without_modules_says_how_to_record_them(tmp_path: Path, capsys) -> None:
    transformer(1).trace().save(tmp_path / "a.gmt")
    TraceBuilder().alloc(MIB, MIB).trace().save(tmp_path / "b.gmt")
    paths = [str(tmp_path / name) for name in ("a.gmt", "b.gmt")]
    assert main(["compare", *paths, "--by", "module"]) == 1
    assert "b.gmt does not tell modules: record with --modules" in capsys.readouterr().err
    with pytest.raises(ValueError, match="by must be one of"):
        compare_traces(*[Trace.from_events({n: [] for n in _COLUMNS})] * 2, by="colour")


_COLUMNS = ("time_ns", "kind", "address", "size_bytes", "stream", "device", "thread")
