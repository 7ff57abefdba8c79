"""GIVEN a program recorded with modules, WHEN the trace is read, THEN each event has its owner."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from programs import PROGRAMS
from simgpu import run_simulated

import gpumemtrace
from gpumemtrace.trace import Trace

pytestmark = pytest.mark.simgpu

_DRIVER = """
import runpy, sys
import torch
import gpumemtrace
folder, programs, *names = sys.argv[1:]
sys.path.insert(0, programs)
for name in names:
    sys.argv = [name, folder]
    sys.modules.pop("owned", None)
    with gpumemtrace.install(f"{folder}/{name}.gmt", modules=True):
        runpy.run_path(f"{programs}/{name}.py", run_name="__main__")
assert torch.nn.Linear.__dict__.get("__call__") is None
assert "__init_subclass__" not in vars(torch.nn.Module)
"""
NAMES = ["owned_eager", "owned_checkpointed", "owned_wrapped"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("owned")
    run_simulated(_DRIVER, args=[str(path), str(PROGRAMS), *NAMES])
    return path


def owners(trace: Trace) -> dict[int, Counter[str | None]]:
    """By size, the modules of the allocs of that size."""
    found: dict[int, Counter[str | None]] = {}
    columns = trace.columns("kind", "size_bytes", "site")
    for kind, size, site in zip(*columns.values(), strict=True):
        if kind == 1:
            module = trace.sites.module[site]
            name = None if module < 0 else trace.sites.module_names[module]
            found.setdefault(int(size), Counter())[name] += 1
    return found


@pytest.mark.parametrize("name", NAMES)
def test_each_alloc_has_the_module_that_made_it(folder: Path, name: str) -> None:
    expected = json.loads((folder / f"{name}.json").read_text())
    found = owners(gpumemtrace.open(folder / f"{name}.gmt"))
    assert len(expected) > 20
    wrong = {
        owner: found[int(size)]
        for size, owner in expected.items()
        if found[int(size)] != Counter({owner: 1})
    }
    assert not wrong
