"""GIVEN a run that tells modules and call sites, WHEN it grows, THEN who keeps memory is named."""

from __future__ import annotations

import collections
import json
from pathlib import Path

import numpy as np
import pytest
from growth_runs import Run, train
from hypothesis import given
from hypothesis import strategies as st
from synthetic import MIB, PHASE_NAMES, event_columns

from gpumemtrace.analysis.growth import find_growth
from gpumemtrace.analysis.retained_by import RetainedBy, find_retained_by
from gpumemtrace.cli.main import main
from gpumemtrace.trace import Trace

LEAK = ("/code/train.py", 12, "train.<locals>.remember")
CALLER = ("/code/train.py", 30, "<module>")
TORCH = ("/env/site-packages/torch/nn/modules/linear.py", 134, "forward")
OTHER = ("/code/model.py", 5, "forward")


def leaking(steps: int = 60, with_stacks: range = range(1000)) -> Run:
    """One block a step stays, of the same size as one that does not; stacks in some steps."""

    def forward(run: Run, step: int) -> None:
        frames = (TORCH, LEAK, CALLER) if step in with_stacks else ()
        run.keep(("leak", step), MIB, site=run.site("layers.3", *frames, root="Net"))
        frames = (OTHER, CALLER) if step in with_stacks else ()
        run.keep(("passing", step), MIB, site=run.site("layers.1", *frames, root="Net"))
        if step:
            run.drop(("passing", step - 1))

    return train(steps, forward=forward)


def test_the_line_and_the_module_that_keep_memory_are_named() -> None:
    (device,) = leaking().trace().growth().devices
    (owner,) = device.owners
    assert (owner.line.name, owner.module.name) == (
        "train.py:12 train.<locals>.remember",
        "layers.3",
    )
    assert owner.line.blocks == owner.line.known == owner.line.of_blocks > 30
    assert owner.to_dict()["site"]["name"] == owner.line.name


def test_a_few_steps_with_stacks_are_enough(tmp_path: Path, capsys) -> None:
    path = tmp_path / "leak.gmt"
    leaking(with_stacks=range(20, 23)).trace().save(path)
    assert main(["growth", "-q", str(path)]) == 10
    said = capsys.readouterr().out
    assert "train.py:12 train.<locals>.remember (known of 3 of " in said
    assert "by module layers.3" in said


def test_a_trace_without_them_names_nobody() -> None:
    (device,) = train(60, forward=lambda run, step: run.keep(step, MIB)).trace().growth().devices
    (owner,) = device.owners
    assert (owner.line, owner.module) == (None, None)


def test_what_grows_by_line_on_the_command_line(tmp_path: Path, capsys) -> None:
    path = tmp_path / "leak.gmt"
    leaking().trace().save(path)
    assert main(["growth", "--json", "--by", "site", str(path)]) == 10
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    kept = device["retained_by"]
    assert kept["groups"][0]["name"] == "train.py:12 train.<locals>.remember"
    steps = kept["last_step"] - kept["first_step"]
    assert kept["groups"][0]["last_bytes"] - kept["groups"][0]["first_bytes"] == steps * MIB
    assert kept["groups"][0]["last_blocks"] - kept["groups"][0]["first_blocks"] == steps
    assert all(g["first_bytes"] == g["last_bytes"] for g in kept["groups"][1:])
    for by, name in (("module", "layers.3"), ("category", "unknown"), ("phase", "forward")):
        assert main(["growth", "--by", by, str(path)]) == 10
        table = capsys.readouterr().out.partition("in use at the end of")[2]
        assert name in table
    assert {"first_step", "groups"} <= kept.keys()


@pytest.mark.parametrize(
    ("by", "what"), [("module", "record with --modules"), ("site", "record with --stacks python")]
)
def test_a_trace_that_does_not_tell_says_how_to_record_it(by, what, tmp_path, capsys) -> None:
    path = tmp_path / "plain.gmt"
    train(10).trace().save(path)
    assert main(["growth", "--by", by, str(path)]) == 1
    assert what in capsys.readouterr().err


@given(
    columns=event_columns(min_events=8, max_events=80),
    data=st.data(),
    by=st.sampled_from(["module", "phase", "category", "site"]),
)
def test_groups_are_those_of_a_plain_replay(columns, data, by) -> None:
    count = len(columns["kind"])
    columns["step"] = np.sort(columns["step"] % 5)
    columns["site"] = np.array(
        data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)), np.uint32
    )
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES, module_names=["a", "b.c", "d"])
    object.__setattr__(trace._source, "batch_records", data.draw(st.integers(1, 40)))
    for growth in find_growth(trace).devices:
        found = find_retained_by(trace, growth, by)
        assert found == (None if found is None else replayed(trace, growth.device, found))


def replayed(trace: Trace, device: int, found: RetainedBy) -> RetainedBy:
    """Return what should have been found, by a loop over the events."""
    lifetimes = trace.lifetimes()

    def owner_of(row: int) -> str:
        event = lifetimes.birth_index[row]
        if found.by == "module":
            site = int(trace.site[event])
            return trace.sites.module_names[site - 1] if site else "no module"
        if found.by == "site":
            return "(stacks were off)"
        if found.by == "category":
            return str(lifetimes.category[row])
        return trace.phase_name(int(lifetimes.birth_phase[row])) or "no phase"

    at = {}
    for number in (found.first_step, found.last_step):
        row = np.flatnonzero(trace.steps.number == number)[-1]
        end = trace.steps.end_event[row]
        born = (lifetimes.birth_index < end) & (lifetimes.device == device)
        live = born & ((lifetimes.death_index < 0) | (lifetimes.death_index >= end))
        at[number] = collections.Counter()
        for i in np.flatnonzero(live).tolist():
            rounded = -(-int(lifetimes.size_bytes[i]) // 512) * 512
            at[number][owner_of(i)] += max(rounded, 0) + 1j  # blocks in the imaginary part
    first, last = at[found.first_step], at[found.last_step]
    group = type(found.groups[0]) if found.groups else None
    groups = [
        group(n, int(first[n].real), int(last[n].real), int(first[n].imag), int(last[n].imag))
        for n in {*first, *last}
    ]
    groups.sort(key=lambda g: (-abs(g.last_bytes - g.first_bytes), -g.last_bytes, g.name))
    return RetainedBy(device, found.by, found.first_step, found.last_step, tuple(groups))
