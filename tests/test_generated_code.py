"""C14: code that was generated (FX, torch.compile), and whatever names code being broken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from simgpu import run_simulated

import gpumemtrace
from gpumemtrace.analysis.check import check_trace
from gpumemtrace.cli.main import main
from gpumemtrace.schema import Kind, StackState
from gpumemtrace.sites import Sites
from gpumemtrace.trace import Trace

pytestmark = pytest.mark.simgpu

# A module that FX generated, one that torch.compile did, a function from exec, and a lambda; each
# makes a block of its own size. Broken: all that Python has to look source up or to show a stack
# raises, and so do the generated code's own loaders.
GENERATED = """
import inspect, linecache, sys, traceback
import torch, gpumemtrace

def makes(size):
    class Net(torch.nn.Module):
        def forward(self, x):
            return x.new_empty(size, dtype=torch.uint8), x * 2
    return Net()

def broken(*args, **kwargs):
    raise RuntimeError("no names here")

session = gpumemtrace.install("t.gmt", stacks="python", modules=True)
x = torch.ones(8, device="cuda")
traced = torch.fx.symbolic_trace(makes(1_000_003))
compiled = torch.compile(makes(1_000_033), backend="eager")
compiled(x)
names = {"torch": torch}
exec("def made(n): return torch.empty(n, dtype=torch.uint8, device='cuda')", names)
if sys.argv[1:] == ["broken"]:
    linecache.getline = linecache.getlines = linecache.updatecache = broken
    inspect.getsource = inspect.getsourcefile = inspect.findsource = inspect.stack = broken
    traceback.extract_stack = traceback.walk_stack = broken
    names["made"].__globals__["__loader__"] = names["made"].__globals__["__name__"] = None
for step in range(3):
    held = [traced(x), compiled(x), names["made"](1_000_037)]
    held.append((lambda n: torch.empty(n, dtype=torch.uint8, device="cuda"))(1_000_039))
    gpumemtrace.step()
session.close()
"""
FX, COMPILED, EXEC, LAMBDA = 1_000_003, 1_000_033, 1_000_037, 1_000_039


def functions_of(trace: Trace, size: int) -> set[tuple[str, ...]]:
    sites = np.unique(trace.site[(trace.kind == Kind.ALLOC) & (trace.size_bytes == size)])
    assert len(sites), size
    assert set(trace.sites.state[sites].tolist()) == {StackState.TAKEN}
    stacks = [trace.sites.stack(site) for site in sites.tolist()]
    return {tuple(str(frame) for frame in stack) for stack in stacks}


@pytest.fixture(scope="module", params=["whole", "broken"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    run_simulated(GENERATED, args=[request.param], cwd=folder)
    return folder / "t.gmt"


def test_generated_code_has_its_place(path: Path) -> None:
    trace = gpumemtrace.open(path)
    assert (check_trace(trace).verdict, trace.steps.total) == ("good", 3)
    for size, of_code in ((FX, "<eval_with_key>"), (EXEC, "made"), (LAMBDA, "<lambda>")):
        for stack in functions_of(trace, size):
            assert any(of_code in frame for frame in stack), (size, stack)
    assert all(len(stack) > 1 for stack in functions_of(trace, COMPILED))


def test_a_broken_symboliser_leaves_the_trace_readable(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a site stands for is looked up when it is shown: all else needs none of it."""

    def broken(*args: object) -> None:
        raise RuntimeError("no names here")

    for name in ("stack", "call_site", "own_frames", "told", "_frames"):
        monkeypatch.setattr(Sites, name, broken)
    for command in ("info", "check", "summary", "growth", "phases", "times", "fragmentation"):
        assert main([command, str(path)]) == 0, command
    assert main(["export", str(path), "--to", "csv", "-o", str(path.with_suffix(".csv"))]) == 0
    assert str(FX) in path.with_suffix(".csv").read_text()
    capsys.readouterr()


_CHUNK_BY_CHUNK = """
import time, torch, gpumemtrace
names = {"torch": torch}
with gpumemtrace.install("whole.gmt", stacks="python", modules=True):
    for i in range(8):  # a new function and a new module in each piece of the file
        text = f"def f{i}(): return torch.nn.Linear(8, 8).cuda()"
        exec(compile(text, f"made_{i}.py", "exec"), names)
        names[f"f{i}"]()(torch.ones(4, 8, device="cuda")).sum().backward()
        time.sleep(0.15)
"""


def test_what_is_left_of_a_cut_file_resolves(tmp_path: Path) -> None:
    """Also of functions made at run time, whose source no file holds."""
    run_simulated(_CHUNK_BY_CHUNK, cwd=tmp_path)
    content = (tmp_path / "whole.gmt").read_bytes()
    whole = gpumemtrace.open(tmp_path / "whole.gmt")
    lengths, of_modules = set(), 0
    for size in range(len(content) // 20, len(content), len(content) // 20):
        cut = tmp_path / f"{size}.gmt"
        cut.write_bytes(content[:size])
        trace = gpumemtrace.open(cut)
        lengths.add(len(trace))
        for site in np.unique(trace.site).tolist():
            assert trace.sites.stack(site) == whole.sites.stack(site)
            one, other = (t.sites.module[site] for t in (trace, whole))
            assert (one < 0) == (other < 0)
            if one >= 0:  # else it is in no module
                assert trace.sites.module_names[one] == whole.sites.module_names[other]
                of_modules += 1
    assert len(lengths) > 5 and max(lengths) > len(whole) // 2
    assert of_modules > 5
