"""GIVEN a program recorded with stacks, WHEN it is read, THEN allocations have their lines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from launch import RUN, python
from programs import PROGRAMS
from simgpu import result_of, run_simulated

import gpumemtrace
from gpumemtrace.capture.options import RecordingOptions
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
    tmp_path: Path, how: str, function: str
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
