"""Who made the blocks at the peak, by module and by line, in traces built by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import MIB, TraceBuilder, event_columns

from gpumemtrace.cli.main import main
from gpumemtrace.schema import Category, StackState
from gpumemtrace.trace import Trace, open

TORCH = ("/env/site-packages/torch/nn/modules/linear.py", 134, "forward")
MODEL = ("/code/model.py", 20, "Net.forward")
TRAIN = ("/code/train.py", 7, "<module>")


def by(trace: Trace, how: str) -> dict[str, int]:
    return {group.name: group.size_bytes for group in trace.peak().group_by(how)}


def test_blocks_belong_to_the_module_that_ran() -> None:
    builder = TraceBuilder()
    builder.alloc(1 * MIB, MIB, site=builder.site("layers.0", root="Net"))
    builder.alloc(2 * MIB, 2 * MIB, site=builder.site("layers.1", root="Net"))
    builder.alloc(4 * MIB, MIB, site=builder.site(root="Net"))
    builder.alloc(5 * MIB, MIB, site=builder.site("layers.1", root="Net"))
    builder.alloc(6 * MIB, MIB)
    assert by(builder.trace(), "module") == {
        "layers.1": 3 * MIB,
        "layers.0": MIB,
        "Net": MIB,
        "no module": MIB,
    }


def test_several_outermost_modules_tell_their_modules_apart() -> None:
    builder = TraceBuilder()
    builder.alloc(1 * MIB, MIB, site=builder.site("head", root="Actor"))
    builder.alloc(2 * MIB, MIB, site=builder.site("head", root="Critic"))
    builder.alloc(3 * MIB, MIB, site=builder.site(root="Loss"))  # has no modules in it
    assert set(by(builder.trace(), "module")) == {"Actor.head", "Critic.head", "Loss"}


def test_what_is_tagged_belongs_to_the_module_that_it_is_named_after() -> None:
    builder = TraceBuilder()
    forward = builder.site("layers.0.mlp", root="Net")
    whole = builder.site(root="Net")
    optimizer = builder.site(root="AdamW.param_groups[0]")
    builder.alloc(1 * MIB, MIB)  # a parameter, made before any module ran
    builder.alloc(2 * MIB, MIB, site=optimizer)
    builder.alloc(3 * MIB, MIB, site=forward)
    builder.alloc(4 * MIB, MIB, site=optimizer)
    builder.alloc(5 * MIB, MIB, site=whole)
    builder.tag(1 * MIB, "layers.0.mlp.weight", Category.PARAMETER)
    builder.tag(2 * MIB + 512, "layers.0.mlp.weight.exp_avg", Category.OPTIMIZER_STATE)
    builder.tag(4 * MIB, "layers.0.mlp.weight", Category.UNKNOWN)  # a name of the user's
    builder.tag(5 * MIB, "nobody.weight", Category.PARAMETER)
    assert by(builder.trace(), "module") == {
        "layers.0.mlp": 3 * MIB,
        "AdamW.param_groups[0]": MIB,
        "Net": MIB,
    }


def test_a_tag_says_which_of_several_modules_of_that_name_is_meant() -> None:
    builder = TraceBuilder()
    actor, critic = builder.site("head", root="Actor"), builder.site("head", root="Critic")
    for i in (1, 2, 3):
        builder.alloc(i * MIB, i * MIB)
    builder.tag(1 * MIB, "head.weight", Category.PARAMETER)  # as older recorders did
    builder.tag(2 * MIB, "head.weight", Category.PARAMETER, site=critic)
    builder.tag(3 * MIB, "head.weight", Category.GRADIENT, site=actor)
    assert by(builder.trace(), "module") == {"Actor.head": 4 * MIB, "Critic.head": 2 * MIB}


def test_a_tag_means_the_block_that_lay_there_then() -> None:
    builder = TraceBuilder()
    one, two = builder.site("one", root="Net"), builder.site("two", root="Net")
    builder.tag(MIB, "one.weight", Category.PARAMETER)  # nothing lies there
    builder.alloc(MIB, 512, site=two)
    builder.tag(MIB, "one.weight", Category.PARAMETER)
    builder.free(MIB)
    builder.alloc(MIB, MIB, site=two)
    builder.alloc(4 * MIB, 4 * MIB, site=one)  # the peak
    builder.free(MIB)
    builder.alloc(MIB, 512, site=two)
    builder.tag(MIB, "one.weight", Category.PARAMETER)
    expected = {"one": 4 * MIB, "two": MIB}
    assert by(builder.trace(), "module") == expected
    assert by(builder.trace(batch_records=2), "module") == expected


def test_a_line_is_the_innermost_one_outside_of_torch() -> None:
    builder = TraceBuilder()
    builder.alloc(1 * MIB, MIB, site=builder.site("fc", TORCH, MODEL, TRAIN, root="Net"))
    builder.alloc(2 * MIB, MIB, site=builder.site("", TRAIN))
    builder.alloc(3 * MIB, MIB, site=builder.site("fc", TORCH, root="Net"))
    builder.alloc(4 * MIB, MIB, site=builder.site("", TRAIN, state=StackState.FORWARD))
    builder.alloc(5 * MIB, MIB, site=builder.site("", state=StackState.TOO_SMALL))
    builder.alloc(6 * MIB, MIB)
    trace = builder.trace()
    assert by(trace, "site") == {
        "train.py:7 <module>": 2 * MIB,
        "model.py:20 Net.forward": MIB,
        "linear.py:134 forward": MIB,
        "(below the size asked for)": MIB,
        "(stacks were off)": MIB,
    }
    site = int(trace.site[0])
    assert [str(frame) for frame in trace.sites.stack(site)] == [
        "linear.py:134 forward",
        "model.py:20 Net.forward",
        "train.py:7 <module>",
    ]


def test_rows_that_were_lost_are_called_lost() -> None:
    builder = TraceBuilder()
    builder.alloc(1 * MIB, MIB, site=builder.site("fc", MODEL, root="Net"))
    builder.alloc(2 * MIB, MIB, site=99)
    builder.modules.clear()
    builder.codes.clear()
    trace = builder.trace()
    assert by(trace, "module") == {"module 2, lost": MIB, "no module": MIB}
    assert by(trace, "site") == {"lost:20 lost": MIB, "(stacks were off)": MIB}


@given(columns=event_columns(min_events=1), data=st.data())
def test_modules_add_up_to_the_peak(columns: dict[str, np.ndarray], data: st.DataObject) -> None:
    count = len(columns["kind"])
    columns["kind"][0], columns["size_bytes"][0] = 1, 512
    columns["site"] = np.array(
        data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)), np.uint32
    )
    columns.pop("phase")
    trace = Trace.from_events(columns, module_names=["a", "b", "c"])
    peak = trace.peak()
    assert sum(group.size_bytes for group in peak.group_by("module")) == peak.size_bytes
    assert trace.site.tolist() == columns["site"].tolist()
    births = np.flatnonzero(trace.kind == 1)[peak.blocks.alloc]
    assert peak.owners.site.tolist() == columns["site"][births].tolist()


def test_a_wrong_site_is_an_error() -> None:
    columns = {name: [1] for name in ("time_ns", "kind", "address", "size_bytes", "stream")}
    columns |= {"device": [0], "thread": [1], "site": [2]}
    with pytest.raises(ValueError, match="must be 0"):
        Trace.from_events(columns, module_names=["a"])


def test_peak_by_module_on_the_command_line(tmp_path: Path, capsys) -> None:
    builder = TraceBuilder()
    builder.alloc(1 * MIB, MIB, site=builder.site("layers.0_x", root="Net"))
    builder.alloc(2 * MIB, 2 * MIB, site=builder.site("layers.1[a]", root="Net"))
    path = str(tmp_path / "train.gmt")
    builder.trace().save(path)
    assert len(open(path).sites) == 2
    assert main(["peak", "-q", path, "--by", "module"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["layers.1[a]", "2.0", "MiB", "66.7%", "1"] in lines
    assert ["layers.0_x", "1.0", "MiB", "33.3%", "1"] in lines
    assert main(["peak", "--json", path]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert "site" not in groups
    assert groups["module"][0] == {"name": "layers.1[a]", "bytes": 2 * MIB, "blocks": 1}
    assert main(["peak", path, "--by", "site"]) == 1
    assert "does not tell call sites: record with --stacks python" in capsys.readouterr().err
