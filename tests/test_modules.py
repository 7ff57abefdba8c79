"""GIVEN a program recorded with modules, WHEN the trace is read, THEN each event has its owner."""

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
from gpumemtrace.analysis.categories import CATEGORY_NAMES
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


def test_what_shards_or_replicates_owns_nothing(tmp_path: Path) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = [str(PROGRAMS / "owned_sharded.py"), str(tmp_path)]
    command = [*RUN, "-q", "--modules", *launcher, *program]
    python(*command, cwd=tmp_path, devices=2, timeout=300)
    traces = [gpumemtrace.open(path) for path in tmp_path.glob("*.gmt")]
    assert sorted(trace.run_record["rank"] for trace in traces) == [0, 1]
    for trace in traces:
        written = tmp_path / f"owned_sharded.{trace.run_record['rank']}.json"
        expected = json.loads(written.read_text())
        found = owners(trace)
        assert len(expected) > 100
        assert {size: found[int(size)] for size in expected} == {
            size: Counter({owner: 1}) for size, owner in expected.items()
        }
        parts = ("parts.0", "parts.1", "parts.2", "head")
        paths = ("", ".parts", *(f".{part}{inner}" for part in parts for inner in ("", ".proj")))
        modules = {f"{net}{path}" for net in ("Net", "Net#2", "Net#3") for path in paths}
        assert set(trace.sites.module_names) == modules | {"SGD", "SGD.param_groups[0]"}
        # Under FSDP2 each rank has half of each parameter, and that is its module's.
        peak = trace.peak(step=1, line="requested")
        is_parameter = peak.blocks.category_id == CATEGORY_NAMES.index("parameter")
        for path in ("parts.0.proj", "parts.1.proj", "parts.2.proj", "head.proj"):
            of_module = peak.owners.module == peak.owners.module_names.index(f"Net.{path}")
            shards = peak.blocks.requested_bytes[of_module & is_parameter]
            assert sorted(shards.tolist()) == [4 * 16, 4 * 16 * 32]


_TRANSPARENT = """
import json, sys, torch, gpumemtrace
from torch import nn
from torch._dynamo.utils import counters

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 16)
    def forward(self, x):
        x = torch.relu(self.fc(x))
        torch._dynamo.graph_break()
        return self.fc(x)

graphs = []
def backend(graph, inputs):
    graphs.append(sorted(str(node.target) for node in graph.graph.nodes))
    return graph

def train(options):
    graphs.clear()
    counters.clear()
    torch._dynamo.reset()
    torch.manual_seed(0)
    with gpumemtrace.install(f"{options}.gmt", modules=options):
        net = nn.Sequential(Block(), Block()).cuda()
        compiled = torch.compile(net, backend=backend)
        for rows in (4, 4, 8, 8):
            compiled(torch.ones(rows, 16, device="cuda")).sum().backward()
    frames = {key: dict(value) for key, value in counters.items() if key in ("frames", "stats")}
    return graphs[:], frames, sum(counters["graph_break"].values()), vars(nn.Module).keys() - {""}

def plain(result):
    return [list(map(str, result[0])), result[1], result[2], sorted(result[3])]

print(json.dumps([plain(train(False)), plain(train(True))]))
"""


def test_compiled_code_is_the_same_with_modules(tmp_path: Path) -> None:
    without, with_modules = result_of(run_simulated(_TRANSPARENT, cwd=tmp_path))
    assert with_modules == without
    assert len(without[0]) > 2 and without[2] > 0
    found = gpumemtrace.open(tmp_path / "True.gmt").sites.module_names
    assert "Sequential" in found and not any("_orig_mod" in name for name in found)


def test_optimizers_compiled_functions_and_errors(tmp_path: Path) -> None:
    code = """
import contextlib, torch, gpumemtrace
with gpumemtrace.install("t.gmt", phases="manual"):
    sizes = [torch.nn.Parameter(torch.ones(n, device="cuda")) for n in (10_001, 20_001, 30_001)]
    groups = [{"params": sizes[:1]}, {"params": sizes[1:2]}]
    optimizer, other = torch.optim.AdamW(groups), torch.optim.AdamW(sizes[2:])
    gpumemtrace.watch(torch.nn.Module(), modules=True)  # begins it
    def loss(x):
        return x * 2
    compiled = torch.compile(loss, backend="eager")
    for _ in range(2):
        for p in sizes:
            p.grad = torch.ones_like(p)
        optimizer.step()
        with contextlib.suppress(ZeroDivisionError):
            other.step(lambda: 1 / 0)
        other.step()
        compiled(torch.ones(40_001, device="cuda"))
        torch.empty(50_001, device="cuda")
"""
    run_simulated(code, cwd=tmp_path)
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    found = owners(trace)
    assert found[4 * 10_001]["AdamW.param_groups[0]"] >= 2
    assert found[4 * 20_001]["AdamW.param_groups[1]"] >= 2
    assert found[4 * 30_001]["AdamW#2.param_groups[0]"] >= 2
    assert not {"AdamW.param_groups[1]", "AdamW"} & found[4 * 10_001].keys()
    assert found[4 * 40_001] == Counter({None: 2, "loss (compiled)": 2})
    assert found[4 * 50_001] == Counter({None: 2})


def test_graphs_that_compiling_makes_own_nothing(tmp_path: Path) -> None:
    code = """
import torch, gpumemtrace
from torch import nn
with gpumemtrace.install("t.gmt", modules=True):
    weight = nn.Parameter(torch.ones(100, 100, device="cuda"))
    def block(x):
        return torch.tanh(x @ weight)
    block = torch.compile(block, backend="aot_eager")
    net = torch.compile(nn.Sequential(nn.Linear(100, 100), nn.ReLU()).cuda(), backend="aot_eager")
    class Inner(nn.Module):
        def forward(self, x):
            return block(x) * 2
    inner = Inner()
    for _ in range(2):
        inner(block(net(torch.ones(501, 100, device="cuda")))).sum().backward()
"""
    run_simulated(code, cwd=tmp_path)
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    made = owners(trace)[4 * 501 * 100]
    assert set(made) == {None, "Sequential", "block (compiled)", "Inner"}
    assert made[None] == 2 and made["Sequential"] >= 4 and made["block (compiled)"] >= 8
    assert not any("Graph" in name or "inner" in name for name in trace.sites.module_names)


def test_two_models_with_equal_paths_have_their_own_parameters(tmp_path: Path) -> None:
    code = """
import torch, gpumemtrace
from torch import nn

class Generator(nn.Sequential):
    pass
class Discriminator(nn.Sequential):
    pass

with gpumemtrace.install("t.gmt", modules=True):
    nets = [Generator(nn.Linear(300, 1000)).cuda(), Discriminator(nn.Linear(1000, 200)).cuda()]
    optimizers = [torch.optim.Adam(net.parameters()) for net in nets]
    for _ in range(3):
        nets[1](nets[0](torch.ones(4, 300, device="cuda"))).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
"""
    run_simulated(code, cwd=tmp_path)
    peak = gpumemtrace.open(tmp_path / "t.gmt").peak(step=2, line="requested")
    for name, parameters in (("Generator.0", 301 * 1000), ("Discriminator.0", 1001 * 200)):
        mine = peak.owners.module == peak.owners.module_names.index(name)
        by_category = {
            category: int(
                peak.blocks.requested_bytes[
                    mine & (peak.blocks.category_id == CATEGORY_NAMES.index(category))
                ].sum()
            )
            for category in ("parameter", "gradient", "optimizer_state")
        }
        expected = {"parameter": 4, "gradient": 4, "optimizer_state": 8}
        assert by_category == {key: each * parameters for key, each in expected.items()}


@pytest.mark.parametrize("phases", ["auto", "manual", None])
def test_nothing_is_recorded_of_modules_unless_asked_for(
    tmp_path: Path, phases: str | None
) -> None:
    # That nothing of it can be seen in the program either: test_modules_as_ever.py.
    code = f"""
import torch, gpumemtrace
from torch import nn
before = dict(vars(nn.Module)), dict(vars(nn.Linear))
with gpumemtrace.install("t.gmt", phases={phases!r}):
    class Late(nn.Linear):
        pass
    model = nn.Sequential(nn.Linear(8, 8), Late(8, 8)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        model(torch.ones(4, 8, device="cuda")).sum().backward()
        optimizer.step()
    watched = dict(vars(nn.Module)), dict(vars(nn.Linear))
    # To learn of new classes, and of zero_grad's phase.
    changed = {{"__init_subclass__", "zero_grad"}} if {phases!r} == "auto" else set()
    now = {{name for name, value in watched[0].items() if before[0].get(name) is not value}}
    assert now == changed and watched[1] == before[1]
assert (dict(vars(nn.Module)), dict(vars(nn.Linear))) == before
"""
    run_simulated(code, cwd=tmp_path)
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    assert len(trace.columns("kind")["kind"]) > 10
    assert not trace.site.any() and len(trace.sites) == 0 and not trace.sites.module_names


def test_a_transformer_layer_by_layer(tmp_path: Path) -> None:
    done = python(*RUN, "-o", "t.gmt", "--modules", str(PROGRAMS / "layered.py"), cwd=tmp_path)
    sizes: dict[str, list[int]] = result_of(done)
    peak = gpumemtrace.open(tmp_path / "t.gmt").peak(step=2, line="requested")
    blocks, modules = peak.blocks, peak.owners
    assert sum(group.size_bytes for group in peak.group_by("module")) == peak.size_bytes

    def in_use(category: str, prefix: str) -> int:
        of = [i for i, name in enumerate(modules.module_names) if f"{name}.".startswith(prefix)]
        mine = np.isin(modules.module, of) & (blocks.category_id == CATEGORY_NAMES.index(category))
        return int(blocks.requested_bytes[mine].sum())

    # What was asked for: a block may hold up to 1 MiB that the allocator did not split off.
    activations = [in_use("activation", f"h.{i}.") for i in range(4)]
    assert len(set(activations)) == 1 and activations[0] > 4 * 32 * 128 * 64 * 8
    for category in ("parameter", "gradient"):
        for name, own in sizes.items():
            # Tied to the embedding's weight, which is where it is found first.
            expected = 0 if name == "head" else sum(own)
            mine = modules.module == modules.module_names.index(name)
            mine &= blocks.category_id == CATEGORY_NAMES.index(category)
            assert int(blocks.requested_bytes[mine].sum()) == expected, (category, name)
