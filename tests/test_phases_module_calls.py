"""GIVEN unusual ways to make or call modules, WHEN phases are recorded, THEN all are seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from simgpu import run_simulated

import gpumemtrace

pytestmark = pytest.mark.simgpu

_PROGRAM = """
import sys
import torch
from torch import fx, nn
import gpumemtrace

folder = sys.argv[1]
model = nn.Sequential(nn.Linear(16, 16), nn.ReLU())


def train(model, before_step_2=lambda: None):
    model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        if step == 2:
            before_step_2()
        optimizer.zero_grad()
        model(torch.ones(4, 16, device="cuda")).sum().backward()
        optimizer.step()
    tables = nn.modules.module
    assert not tables._global_forward_pre_hooks and not tables._global_forward_hooks
    assert not model._forward_hooks and not model._forward_pre_hooks


def assign_call():
    original = nn.Module.__call__
    nn.Module.__call__ = lambda self, *args, **kwargs: original(self, *args, **kwargs)
    nn.Module.__call__ = original


def made_late():
    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(16, 16))

        def forward(self, x):
            return x @ self.weight

    return Late()


class OwnCall(nn.Sequential):
    def __call__(self, x):
        return super().__call__(x)


class ForeignCall(nn.Sequential):
    def __call__(self, x):
        return self[1](self[0](x))


class KeepsToItself(nn.Sequential):
    def __init_subclass__(cls):
        pass


def layers():
    return nn.Linear(16, 16), nn.ReLU()


for name, with_modules in (("first", False), ("second", True), ("third", False)):
    with gpumemtrace.install(f"{folder}/{name}.gmt", modules=with_modules):
        train(model)
with gpumemtrace.install(f"{folder}/late.gmt"):
    train(made_late())
with gpumemtrace.install(f"{folder}/assigned.gmt"):
    train(model, assign_call)
with gpumemtrace.install(f"{folder}/assigned_modules.gmt", modules=True):
    train(model, assign_call)
with gpumemtrace.install(f"{folder}/own_call.gmt"):
    train(OwnCall(*layers()))
with gpumemtrace.install(f"{folder}/foreign_call.gmt"):
    train(ForeignCall(*layers()))
for name, with_modules in (("quiet_class", False), ("quiet_class_modules", True)):
    with gpumemtrace.install(f"{folder}/{name}.gmt", modules=with_modules):
        class Quiet(KeepsToItself):
            pass
        quiet = Quiet(*layers())
        train(quiet)
        assert gpumemtrace._core.forward_roots() == [quiet]
with gpumemtrace.install(f"{folder}/class_assigned.gmt"):
    class Assigned(nn.Sequential):
        pass
    def assign_to_class():
        Assigned.__call__ = OwnCall.__dict__["__call__"]
        Assigned.__call__ = lambda self, x: nn.Sequential.__call__(self, x)
    assigned = Assigned(*layers())
    train(assigned, assign_to_class)
    assert gpumemtrace._core.forward_roots() == [assigned]
with gpumemtrace.install(f"{folder}/script.gmt"):
    train(torch.jit.script(nn.Sequential(*layers())))
graph = fx.symbolic_trace(model)
with gpumemtrace.install(f"{folder}/graph.gmt"):
    train(graph)
with gpumemtrace.install(f"{folder}/new_graph.gmt"):
    train(fx.symbolic_trace(model))
assert "__init_subclass__" not in vars(nn.Module)
"""
WITH_MODULES = ("second", "assigned_modules", "quiet_class_modules")
NAMES = (
    *WITH_MODULES,
    *("first", "third", "late", "assigned", "graph", "new_graph", "script"),
    *("own_call", "foreign_call", "quiet_class", "class_assigned"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("module_calls")
    run_simulated(_PROGRAM, args=[str(path)])
    return path


@pytest.mark.parametrize("name", NAMES)
def test_each_step_has_its_forward(folder: Path, name: str) -> None:
    trace = gpumemtrace.open(folder / f"{name}.gmt")
    entered = [span.name for span in trace.phases if span.entered]
    assert len(trace.steps) == 4
    assert entered == ["init", *["zero_grad", "forward", "backward", "optimizer", "data"] * 4]


@pytest.mark.parametrize("name", NAMES)
def test_modules_are_seen_where_that_was_asked_for(folder: Path, name: str) -> None:
    trace = gpumemtrace.open(folder / f"{name}.gmt")
    named = {"Sequential", "Quiet"} & set(trace.sites.module_names)
    assert len(named) == (name in WITH_MODULES)
    sites = trace.columns("site")["site"]
    forwards = [span for span in trace.phases if span.entered and span.name == "forward"]
    seen = [bool((sites[one.first_event : one.end_event] > 0).any()) for one in forwards]
    # After an assignment to Module.__call__, too: that is noticed when the next phase begins.
    assert seen == [name in WITH_MODULES] * 4
