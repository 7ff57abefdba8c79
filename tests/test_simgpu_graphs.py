"""CUDA graphs and torch.compile on the simulated GPU."""

from __future__ import annotations

import importlib.util

import pytest
from simgpu import result_of, run_simulated

pytestmark = pytest.mark.simgpu


def test_capture_and_replay_of_a_training_step() -> None:
    done = run_simulated("""
        import gc, json
        import torch
        from torch import nn
        model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).cuda()
        x = torch.randn(32, 256, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(x).sum().backward()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        model.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            y = model(x)
            y.sum().backward()
        before = torch.cuda.memory_allocated()
        for _ in range(3):
            graph.replay()
        pools = {tuple(s["segment_pool_id"]) for s in torch.cuda.memory_snapshot()}
        seen = [len(pools), torch.cuda.memory_allocated() - before,
                torch.cuda.is_current_stream_capturing()]
        graph.reset()
        del graph, y, model
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()  # older torch keeps them in the graph's pool
        torch.cuda.empty_cache()
        pools = {tuple(s["segment_pool_id"]) for s in torch.cuda.memory_snapshot()}
        print(json.dumps([*seen, sorted(pools)]))
    """)
    assert result_of(done) == [2, 0, False, [[0, 0]]]
    assert "empty" not in done.stderr  # torch warns of graphs without a node


def test_make_graphed_callables() -> None:
    done = run_simulated("""
        import torch
        inputs = torch.randn(4, 64, device="cuda")
        layer = torch.cuda.make_graphed_callables(torch.nn.Linear(64, 64).cuda(), (inputs,))
        for _ in range(3):
            layer(torch.randn(4, 64, device="cuda")).sum().backward()
        print(layer.weight.grad.numel())
    """)
    assert result_of(done) == 64 * 64


def test_other_streams_may_join_a_capture() -> None:
    done = run_simulated("""
        import torch
        x = torch.randn(32, device="cuda")
        side = torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                y = x * 2
            torch.cuda.current_stream().wait_stream(side)
            z = y + 1
        graph.replay()
        print(z.numel())
    """)
    assert result_of(done) == 32


# What a real driver refuses during capture must not pass here.
FORBIDDEN = {
    "reading a value": ("y.sum().item()", "operation not permitted when stream is capturing"),
    "synchronising": (
        "torch.cuda.synchronize()",
        "operation not permitted when stream is capturing",
    ),
    "leaving a stream behind": (
        "side.wait_stream(torch.cuda.current_stream()); torch.cuda.set_stream(side); y = y + 1; "
        "torch.cuda.set_stream(main)",
        "capturing stream has unjoined work",
    ),
    "waiting for what is not captured": (
        "torch.cuda.current_stream().wait_event(outside)",
        "dependency created on uncaptured work in another stream",
    ),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_a_capture_forbids(name: str) -> None:
    statement, message = FORBIDDEN[name]
    done = run_simulated(f"""
        import json
        import torch
        x = torch.randn(32, device="cuda")
        side = torch.cuda.Stream()
        outside = torch.cuda.Event()
        outside.record(side)
        graph = torch.cuda.CUDAGraph()
        text = ""
        try:
            with torch.cuda.graph(graph):
                main = torch.cuda.current_stream()
                y = x * 2
                {statement}
        except RuntimeError as error:
            while error is not None:
                text += str(error)
                error = error.__context__
        print(json.dumps(text))
    """)
    assert message in result_of(done)


COMPILED = """
    import json, sys, warnings
    import torch
    from torch import nn
    torch.manual_seed(0)
    layers = nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 64)
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    compiled = torch.compile(model, mode=sys.argv[1])
    ends = []
    for _ in range(6):
        compiled(torch.randn(64, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        ends.append(torch.cuda.memory_allocated())
    pools = {tuple(s["segment_pool_id"]) for s in torch.cuda.memory_snapshot()}
    from torch._dynamo.utils import counters
    print(json.dumps([ends, len(pools), counters["stats"]["unique_graphs"]]))
"""


@pytest.mark.parametrize(
    ("mode", "has_graph_pool"), [("default", False), ("reduce-overhead", True)]
)
def test_compiled_training(mode: str, has_graph_pool: bool) -> None:
    """Triton compiles for the card that is simulated, and its launcher finds the driver."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed: a lean torch comes without it")
    done = run_simulated(COMPILED, args=[mode], timeout=300)
    ends, pools, graphs = result_of(done)
    assert graphs == 1
    assert len(set(ends[3:])) == 1
    assert (pools > 1) == has_graph_pool
