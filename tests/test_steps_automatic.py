"""GIVEN optimizers that come, go and take turns, WHEN they step, THEN each step is counted once."""

from __future__ import annotations

from pathlib import Path

import pytest
from simgpu import run_simulated

import gpumemtrace

pytestmark = pytest.mark.simgpu

_PROGRAM = """
import sys
import torch
import gpumemtrace

with gpumemtrace.install("none.gmt"):
    pass  # the allocator is ours before CUDA memory is used
model = torch.nn.Linear(4, 4).cuda()
x = torch.ones(1, 4, device="cuda")


def make():
    return torch.optim.SGD(model.parameters(), lr=0.1)


def step(optimizer, times=1, backwards=1):
    for _ in range(times):
        for _ in range(backwards):
            model(x).sum().backward()
        optimizer.step()


first, second = make(), make()
with gpumemtrace.install("taken_over.gmt"):
    step(first, 250)
    step(second, 7)  # once more, and it would take over
    step(first)
    step(second, 20)  # from the 14th on: twice as many as the first has ever let it make
    assert gpumemtrace.now().step == 258
with gpumemtrace.install("by_hand.gmt"):
    step(first, 5)
    gpumemtrace.step()  # the user counts from here on; this is what the optimizer has counted
    step(first, 5)
    gpumemtrace.step()
    gpumemtrace.step()
with gpumemtrace.install("replaced.gmt"):
    for _ in range(3):
        optimizer = make()
        step(optimizer, 120)
        del optimizer
with gpumemtrace.install("groups.gmt"):
    step(first, 3)
    first.add_param_group({"params": [torch.nn.Parameter(torch.ones(9, device="cuda"))]})
    step(first, 3)
with gpumemtrace.install("accumulated.gmt"):
    step(first, 110, backwards=3)
    step(first, 3)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("steps")
    run_simulated(_PROGRAM, cwd=path)
    return path


@pytest.mark.parametrize(
    ("name", "count"),
    [("taken_over", 258), ("by_hand", 7), ("replaced", 360), ("groups", 6), ("accumulated", 113)],
)
def test_each_step_is_counted_once(folder: Path, name: str, count: int) -> None:
    trace = gpumemtrace.open(folder / f"{name}.gmt")
    assert [step.number for step in trace.steps] == list(range(count))
    entered = [span.name for span in trace.phases if span.entered]
    assert entered.count("optimizer") >= count - 2  # the two by hand


def test_the_run_record_keeps_up(folder: Path) -> None:
    training = gpumemtrace.open(folder / "accumulated.gmt").run_record["training"]
    assert training["backwards_per_step"] == 3
    groups = gpumemtrace.open(folder / "groups.gmt").run_record["training"]["optimizers"]
    assert [optimizer["groups"] for optimizer in groups] == [2]
