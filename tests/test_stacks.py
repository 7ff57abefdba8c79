"""GIVEN a program recorded with stacks, WHEN it is read, THEN allocations have their lines."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from launch import RUN, python
from programs import PROGRAMS
from simgpu import result_of, run_simulated

import gpumemtrace
from gpumemtrace.capture.options import RecordingOptions
from gpumemtrace.cli.main import main
from gpumemtrace.schema import StackState
from gpumemtrace.sites import Frame
from gpumemtrace.trace import Trace

pytestmark = pytest.mark.simgpu

LEAKED_BYTES = 1013 * 64 * 4


def _last(frame: Frame) -> str:
    return frame.function.rpartition(".")[2]


def leaked(trace: Trace) -> dict[str, list[int]]:
    """The steps in which blocks were born that are alive at the end, by the line that made them."""
    lives = trace.lifetimes()
    kept = np.flatnonzero((lives.size_bytes == LEAKED_BYTES) & (lives.death_index < 0))
    found: dict[str, list[int]] = {}
    for site, step in zip(trace.site[lives.birth_index[kept]], lives.birth_step[kept], strict=True):
        frame = trace.sites.call_site(int(site))
        # Before Python 3.11 a function does not say within which it was defined.
        line = "" if frame is None else f"{Path(frame.file).name}:{frame.line} {_last(frame)}"
        found.setdefault(line, []).append(int(step))
    return found


@pytest.mark.parametrize(
    ("how", "function"),
    [("eager", "inner"), ("hook", "keep_gradient"), ("compiled", "block")],
)
def test_a_leak_is_named_by_its_line_after_three_steps_with_stacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str, function: str
) -> None:
    options = ["-o", "t.gmt", "--stacks", "python", "--stacks-steps", "5:8"]
    program = str(PROGRAMS / "leaking.py")
    line = python(*RUN, *options, program, how, cwd=tmp_path).stdout.strip()
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    found = leaked(trace)
    steps = found.pop(f"leaking.py:{line} {function}")
    assert steps == [5, 6, 7]
    # The others are there, too, without a line.
    assert found == {"": [0, 1, 2, 3, 4, 8, 9, 10, 11]}
    # So growth names that line as what keeps memory.
    (device,) = trace.growth().devices
    (owner,) = device.owners
    assert owner.line is not None
    assert owner.line.name.startswith(f"leaking.py:{line} ")
    assert owner.line.name.endswith(function)
    assert (owner.line.blocks, owner.line.known) == (3, 3)
    # And so does each command that is asked about it.
    for command in (["growth"], ["growth", "--by", "site"], ["summary"]):
        main([*command, str(tmp_path / "t.gmt")])
        assert f"allocated at {owner.line.name} (known of 3 of " in capsys.readouterr().out
    main(["growth", "--by", "site", "--json", str(tmp_path / "t.gmt")])
    groups = json.loads(capsys.readouterr().out)["devices"][0]["retained_by"]["groups"]
    (group,) = (group for group in groups if group["name"] == owner.line.name)
    assert (group["first_blocks"], group["last_blocks"]) == (0, 3)


_STATES = """
import json, threading, torch, gpumemtrace
net = torch.nn.Linear(256, 256)
def step():
    big = torch.ones(512, 256, device="cuda")  # 512 KiB
    net(big).sum().backward()
with gpumemtrace.install("states.gmt", stacks="python", stacks_min_bytes=4096, modules=MODULES):
    net.cuda()
    step()
    gpumemtrace.stacks(False)
    step()
    gpumemtrace.stacks(True)
    step()
    thread = threading.Thread(target=step, name="mine")
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize("modules", [True, False])
def test_each_allocation_without_a_stack_says_why(tmp_path: Path, modules: bool) -> None:
    """C83."""
    run_simulated(_STATES.replace("MODULES", str(modules)), cwd=tmp_path)
    trace = gpumemtrace.open(tmp_path / "states.gmt")
    sites = trace.sites
    allocs = np.flatnonzero(trace.kind == 1)
    state = sites.state[trace.site[allocs]]
    size = trace.size_bytes[allocs]
    in_backward = np.array([trace.phase_name(p) == "backward" for p in trace.phase[allocs]])
    counts = Counter(StackState(s).name for s in state.tolist())
    assert set(counts) == {"OFF", "TAKEN", "FORWARD", "TOO_SMALL"}
    on = state != StackState.OFF
    off = np.flatnonzero(~on)  # the second step, as a whole
    assert 5 < len(off) == off[-1] - off[0] + 1 and on[: off[0]].any() and on[off[-1] :].sum() > 10
    assert (size[state == StackState.TOO_SMALL] < 4096).all()
    assert (size[(state == StackState.TAKEN) | (state == StackState.FORWARD)] >= 4096).all()
    # Backward runs in a thread without Python; what it makes points to the forward operator.
    assert in_backward[state == StackState.FORWARD].all()
    lines = {sites.call_site(int(s)) for s in trace.site[allocs[state == StackState.FORWARD]]}
    lines = {None if frame is None else (frame.line, frame.function) for frame in lines}
    assert lines == {(6, "step")}
    taken = [sites.stack(int(s)) for s in trace.site[allocs[state == StackState.TAKEN]]]
    assert {_last(frames[-1]) for frames in taken} == {"<module>", "_bootstrap"}
    assert any(frames[0].file.endswith("torch/nn/modules/linear.py") for frames in taken)
    of_linear = [s for s in trace.site[allocs] if sites.module[s] >= 0]
    assert bool(of_linear) == modules
    # Frees carry no stack, but the module.
    frees = trace.site[trace.kind == 2]
    assert (sites.state[frees] == StackState.OFF).all() and not sites.frame[frees].any()


_NO_PYTHON = """
import torch

@torch.jit.script
def inner(x):
    return torch.ones([40_001], device=x.device) + x

@torch.jit.script
def outer(x):
    future = torch.jit.fork(inner, x)  # in a thread of PyTorch's
    return torch.jit.wait(future)

x = torch.zeros(1, device="cuda")
for _ in range(3):
    outer(x)
"""


def test_a_thread_of_a_library_says_so(tmp_path: Path) -> None:
    """C83."""
    (tmp_path / "forked.py").write_text(_NO_PYTHON)
    python(*RUN, "-o", "t.gmt", "--stacks", "python", "forked.py", cwd=tmp_path)
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    sites = trace.site[trace.size_bytes == 4 * 40_001]
    states = trace.sites.state[sites].tolist()
    assert len(states) == 6 and StackState.NO_PYTHON in states
    for site, state in zip(sites.tolist(), states, strict=True):
        if state == StackState.NO_PYTHON:
            assert trace.sites.stack(site) == ()


def told(path: Path) -> dict[int, list[tuple[str, str]]]:
    """By its size, the state of each alloc and the function of ``made.py`` that it was made in."""
    trace = gpumemtrace.open(path)
    found: dict[int, list[tuple[str, str]]] = {}
    allocs = trace.kind == 1
    for size, site in zip(trace.size_bytes[allocs], trace.site[allocs].tolist(), strict=True):
        state = StackState(int(trace.sites.state[site])).name
        made = (str(f) for f in trace.sites.stack(site) if f.file == "made.py")
        found.setdefault(int(size), []).append((state, next(made, "")))
    return found


_MADE = """
import torch, gpumemtrace
from gpumemtrace import _torch_hook
def make(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")
names = {"make": make, "sites": _torch_hook.time_sites}
def define(name, lines):
    text = "\\n    ".join([f"def {name}():", *lines])
    exec(compile(text, "made.py", "exec"), names)
    return names[name]
"""


def test_more_different_stacks_than_are_kept(tmp_path: Path) -> None:
    """C83."""
    code = """
functions = [define(f"f{i}", [f"make({50_001 + i})", *["sites(1024, 1)"] * 999]) for i in range(70)]
with gpumemtrace.install("t.gmt", stacks="python"):
    for _ in range(2):
        for function in functions:
            function()
"""
    run_simulated(_MADE + code, cwd=tmp_path)
    found = told(tmp_path / "t.gmt")
    assert len(found) == 70
    for size, stacks in found.items():
        number = size - 50_001  # stacks: number * 1000, and those of the script's lines
        kept = [("TAKEN", f"made.py:2 f{number}")] * 2
        assert stacks == (kept if number <= 65 else [("TOO_MANY", "")] * 2)


def test_lines_far_into_a_function(tmp_path: Path) -> None:
    """Of more instructions than 16 bits count, some of them so many apart."""
    code = """
import random
places = set(random.Random(1).sample(range(80_000), 2000))
huge = define("huge", [f"make({50_001 + i})" if i in places else "x = 1" for i in range(80_000)])
with gpumemtrace.install("t.gmt", stacks="python"):
    huge()
"""
    run_simulated(_MADE + code, cwd=tmp_path)
    found = told(tmp_path / "t.gmt")
    assert len(found) == 2000
    for size, stacks in found.items():
        assert stacks == [("TAKEN", f"made.py:{size - 50_001 + 2} huge")]


_SWITCHED = """
import torch, gpumemtrace
net = torch.nn.Linear(8, 8)

def train(path, by_hand=False, **options):
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with gpumemtrace.install(path, **options) as session:
        for step in range(106):
            if by_hand and step in (100, 103):
                gpumemtrace.stacks(step == 100)
            torch.empty(100_001 + step, dtype=torch.uint8, device="cuda")
            net(torch.ones(4, 8, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert session.stats.dropped == 0

with gpumemtrace.install("first.gmt"):
    net.cuda()
train("warm.gmt")
train("plain.gmt")
train("steps.gmt", stacks="python", stacks_steps=range(100, 103))
train("hand.gmt", by_hand=True)
"""


def test_stacks_of_three_steps_lose_nothing_that_was_before(tmp_path: Path) -> None:
    """C65."""
    run_simulated(_SWITCHED, cwd=tmp_path)
    plain = gpumemtrace.open(tmp_path / "plain.gmt")
    sizes = plain.size_bytes.tolist()
    assert [plain.step[sizes.index(100_001 + step)] for step in range(106)] == [*range(106)]
    for name in ("steps", "hand"):
        trace = gpumemtrace.open(tmp_path / f"{name}.gmt")
        for column in ("kind", "size_bytes", "device", "step", "phase"):
            np.testing.assert_array_equal(trace[column], plain[column])
        allocs = trace.kind == 1
        state, step = trace.sites.state[trace.site[allocs]], trace.step[allocs]
        is_on = (step >= 100) & (step < 103)
        assert set(state[is_on].tolist()) == {StackState.TAKEN, StackState.FORWARD}
        assert set(state[~is_on].tolist()) == {StackState.OFF}


def test_lines_and_frames_are_what_python_says(tmp_path: Path) -> None:
    code = """
import asyncio, json, types, torch, gpumemtrace
from gpumemtrace import _torch_hook as hook

def codes_of(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_of(constant)

seen = checked = 0
for module in (torch.nn.modules.module, torch.nn.functional, asyncio.base_events, json.decoder):
    with open(module.__file__) as source:
        top = compile(source.read(), module.__file__, "exec")
    for code in codes_of(top):
        seen += 1
        table, first = code.co_linetable, code.co_firstlineno
        for start, end, line in code.co_lines():
            for byte in range(start, end, 2):
                checked += 1
                assert hook.line_of(first, table, byte // 2) == (line or 0), (code, byte, line)
assert seen > 300 and checked > 20_000

def nested(depth):
    return nested(depth - 1) if depth else [hook.start_stacks(False)]
async def coroutine():
    return nested(3)
def generator():
    yield from nested(5)
assert nested(0) == nested(300) == [True]
assert asyncio.run(coroutine()) == [True]
assert list(generator()) == [True]
assert [*map(lambda i: nested(i)[0], range(3))] == [True] * 3
hook.stop_stacks()
"""
    run_simulated("import gpumemtrace.capture.allocator as a; a.ensure_installed()\n" + code)


def test_a_code_object_that_has_gone_is_not_taken_for_another(tmp_path: Path) -> None:
    code = """
import gc, json, torch, gpumemtrace
expected = {}
with gpumemtrace.install("t.gmt", stacks="python"):
    for i in range(200):
        size = 10_001 + i
        names = {"torch": torch}
        exec(compile(f"def f{i}(): return torch.empty({size}, dtype=torch.uint8, device='cuda')",
                     f"made_{i}.py", "exec"), names)
        names[f"f{i}"]()
        expected[size] = f"made_{i}.py:1 f{i}"
        del names
        gc.collect(0)
print(json.dumps(expected))
"""
    expected = result_of(run_simulated(code, cwd=tmp_path))
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    sizes = trace.size_bytes.tolist()
    for size, line in expected.items():
        site = int(trace.site[sizes.index(int(size))])
        assert str(trace.sites.call_site(site)) == line


def test_paths_stay_out_of_a_confidential_trace(tmp_path: Path) -> None:
    folder = tmp_path / "secret-project"
    folder.mkdir()
    (folder / "train.py").write_text(
        "import torch\nnet = torch.nn.Linear(8, 8).cuda()\nnet(torch.ones(4, 8, device='cuda'))\n"
    )
    options = ["-q", "-o", "t.gmt", "--stacks", "python", "--modules", "--confidential"]
    arguments = [str(folder / "train.py"), "--data", str(folder / "set.bin"), f"--out={folder}/o"]
    python(*RUN, *options, *arguments, cwd=tmp_path)
    content = (tmp_path / "t.gmt").read_bytes()
    assert b"secret-project" not in content and str(tmp_path).encode() not in content
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    files = {f.file for s in range(len(trace.sites) + 1) for f in trace.sites.stack(s)}
    assert "train.py" in files and "torch/nn/modules/linear.py" in files
    assert trace.run_record["argv"] == ["train.py", "--data", "set.bin", "--out=o"]
    assert trace.run_record["host"] is None and trace.run_record["cwd"] is None


def test_options_go_through_the_environment() -> None:
    options = RecordingOptions(
        stacks="python", stacks_min_bytes=1 << 20, stacks_steps=range(100, 103), confidential=True
    )
    environment: dict[str, str] = {}
    options.to_environment(environment)
    assert environment["GPUMEMTRACE_STACKS_STEPS"] == "100:103:1"
    assert RecordingOptions.from_environment(environment) == options
    with pytest.raises(ValueError, match="GPUMEMTRACE_STACKS_STEPS=x: "):
        RecordingOptions.from_environment({"GPUMEMTRACE_STACKS_STEPS": "x"})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"stacks": "c++"}, "stacks is"),
        ({"stacks_steps": range(3)}, "give that too"),
        ({"stacks": "python", "stacks_min_bytes": -1}, "stacks_min_bytes is between"),
        ({"stacks": "python", "stacks_steps": range(3), "phases": None}, "needs steps"),
    ],
)
def test_wrong_options_are_errors(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RecordingOptions(**wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="stacks_steps is a range"):
        RecordingOptions(stacks="python", stacks_steps=(1, 2))  # type: ignore[arg-type]
