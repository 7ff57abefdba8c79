"""A program behaves with the hook as without: same results, same output, same exit status."""

import json
from pathlib import Path

import pytest
from hook import assert_same, run_traced, run_untraced
from hook_lines import check_steps, replay

from gpumemtrace.schema import Kind

pytestmark = pytest.mark.simgpu


def test_memory_functions(tmp_path: Path) -> None:
    # C15: every documented function of torch.cuda.memory, byte for byte.
    program = """
        import hashlib, json
        import torch
        import hook_child
        hook_child.start()
        m = torch.cuda.memory

        def show(name, value):
            print(name, hashlib.sha256(repr(value).encode()).hexdigest()[:16], str(value)[:80])

        before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        x = [torch.ones(n, device="cuda") for n in (10, 1000, 300_000, 5_000_000, 9_000_000)]
        del x[1::2]
        for again in range(2):
            for name in ("memory_allocated", "max_memory_allocated", "memory_reserved",
                         "max_memory_reserved", "memory_stats", "memory_stats_as_nested_dict",
                         "memory_summary", "mem_get_info", "get_per_process_memory_fraction",
                         "list_gpu_processes", "memory_cached", "max_memory_cached",
                         "get_allocator_backend", "host_memory_stats", "memory_usage"):
                if function := getattr(m, name, None):
                    try:
                        show(name, function())
                    except Exception as error:
                        show(name, error)
            show("summary short", m.memory_summary(abbreviated=True))
            y = torch.ones(4_000_000, device="cuda")
            m.reset_peak_memory_stats()
            m.reset_accumulated_memory_stats()
            show("after reset", m.memory_stats())
            m.reset_max_memory_allocated()
            m.reset_max_memory_cached()
            del y
            m.set_per_process_memory_fraction(0.5)
            show("fraction", torch.cuda.mem_get_info())
            m.empty_cache()
            show("emptied", m.memory_stats())
        show("snapshot", [{k: v for k, v in s.items() if k not in ("address", "stream")}
                          | {"blocks": [b["size"] for b in s["blocks"]]}
                          for s in torch.cuda.memory_snapshot()])
        raw = m.caching_allocator_alloc(5000)
        show("raw", m.memory_allocated())
        m.caching_allocator_delete(raw)
        show("raw freed", m.memory_allocated())
        if hasattr(torch, "accelerator") and hasattr(torch.accelerator, "memory_stats"):
            show("accelerator", torch.accelerator.memory_stats())
            torch.accelerator.empty_cache()
            show("accelerator emptied", torch.accelerator.memory_reserved())
        hook_child.stop()
    """
    assert_same(program, tmp_path / "t.gmt")
    seen = replay(tmp_path / "t.gmt")
    assert seen.counts[Kind.EMPTY_CACHE] >= 2
    assert seen.unknown_frees == 0


def test_history_and_snapshot(tmp_path: Path) -> None:
    program = """
        import json
        import torch
        import hook_child
        hook_child.start()
        torch.cuda.memory._record_memory_history(max_entries=10_000, stacks="python")
        x = torch.ones(3_000_000, device="cuda")
        y = [torch.ones(n, device="cuda") for n in (10, 500_000)]
        del y[0]
        torch.cuda.empty_cache()
        snapshot = torch.cuda.memory._snapshot()
        entries = [(e["action"], e["size"], len(e["frames"]), [f["name"] for f in e["frames"]][:3])
                   for e in snapshot["device_traces"][0]]
        print(json.dumps(entries))
        print([(s["total_size"], s["allocated_size"], len(s["blocks"]))
               for s in snapshot["segments"]])
        torch.cuda.memory._record_memory_history(enabled=None)
        print(len(torch.cuda.memory._snapshot()["device_traces"][0]))
        hook_child.stop()
    """
    done = assert_same(program, tmp_path / "t.gmt")
    assert "segment_alloc" in done.stdout and "free_completed" in done.stdout


TRAINING = """
    import json
    import torch
    import torch.nn as nn
    import hook_child
    hook_child.start()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3),
                          nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.backends.cudnn.benchmark = {benchmark}
    steps = hook_child.Steps()
    for step in range({steps}):
        x = torch.randn(8 + step % 3, 3, 40, 40).cuda()
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if hook_child.TRACE and step < 20:
            steps.end()
    stats = torch.cuda.memory_stats()
    hook_child.stop()
    print(json.dumps({{k: stats[k] for k in ("segment.all.allocated", "num_device_alloc",
        "num_device_free", "allocation.all.allocated", "num_alloc_retries",
        "allocated_bytes.all.peak", "reserved_bytes.all.peak")}}))
"""


def test_segments_are_those_of_the_untraced_run(tmp_path: Path) -> None:
    # C21: as many calls of the driver, over many steps.
    program = TRAINING.format(benchmark=False, steps=200)
    done = assert_same(program, tmp_path / "t.gmt")
    segments = json.loads(done.stdout.splitlines()[-1])["segment.all.allocated"]
    assert replay(tmp_path / "t.gmt").counts[Kind.SEGMENT_ALLOC] == segments


def test_cudnn_benchmark(tmp_path: Path) -> None:
    # C20: the timing pass asks the allocator for its largest cached block.
    assert_same(TRAINING.format(benchmark=True, steps=3), tmp_path / "t.gmt")


GRAPHS = """
    import torch
    import hook_child
    hook_child.start()
    steps = hook_child.Steps()
    x = torch.ones(1000, 1000, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            y = (x @ x).relu() + 1
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x @ x).relu() + 1
        z = y.sum()
    if hook_child.TRACE: steps.end()
    for _ in range(3):
        graph.replay()
        outside = torch.ones(8_000_000, device="cuda")
        del outside
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    model = torch.cuda.make_graphed_callables(model.cuda(), (torch.randn(16, 64, device="cuda"),))
    for _ in range(3):
        model(torch.randn(16, 64, device="cuda")).sum().backward()
    if hook_child.TRACE: steps.end()
    print(torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), y.shape)
    del graph, y, z
    torch.cuda.empty_cache()
    print(torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
    if hook_child.TRACE:
        steps.end()
        steps.finish()
"""


def test_graphs(tmp_path: Path) -> None:
    untraced = run_untraced(GRAPHS)
    traced = run_traced(GRAPHS, tmp_path / "t.gmt")
    assert traced.stdout.splitlines()[:-1] == untraced.stdout.splitlines()
    seen = check_steps(tmp_path / "t.gmt", traced)
    assert seen.counts[Kind.POOL_BEGIN] == seen.counts[Kind.POOL_END] >= 2


def test_memory_pools(tmp_path: Path) -> None:
    # C31 (ii): a pool beside the default one; its allocations appear once.
    program = """
        import torch
        import hook_child
        hook_child.start()
        steps = hook_child.Steps()
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = [torch.ones(n, device="cuda") for n in (10, 100_000, 5_000_000)]
        outside = torch.ones(1000, device="cuda")
        if hook_child.TRACE: steps.end()
        print(pool.use_count(), len(pool.snapshot()), torch.cuda.memory_allocated(),
              torch.cuda.memory_reserved())
        del inside
        del pool
        torch.cuda.empty_cache()
        print(torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
        if hook_child.TRACE:
            steps.end()
            steps.finish()
    """
    untraced = run_untraced(program)
    traced = run_traced(program, tmp_path / "t.gmt")
    assert traced.stdout.splitlines()[:-1] == untraced.stdout.splitlines()
    seen = check_steps(tmp_path / "t.gmt", traced)
    assert seen.counts[Kind.POOL_BEGIN] == seen.counts[Kind.POOL_END] == 1
    assert seen.counts[Kind.ALLOC] == 4


def test_reduce_overhead(tmp_path: Path) -> None:
    # C17: CUDA graph trees check, free and restore the allocator's private pools.
    program = """
        import torch
        import hook_child
        hook_child.start()
        torch.manual_seed(0)

        # torch 2.6 gives this backend no mode; it uses graph trees anyway.
        knows_mode = int(torch.__version__.split(".")[1]) > 6

        @torch.compile(mode="reduce-overhead" if knows_mode else None, backend="cudagraphs")
        def f(x, w):
            return (x @ w).relu() @ w

        @torch.compile(mode=None, backend="cudagraphs")
        def g(y, w):
            return (y @ w + 1).relu()

        steps = hook_child.Steps()
        w = torch.randn(256, 256, device="cuda", requires_grad=True)
        for step in range(12):
            torch.compiler.cudagraph_mark_step_begin()
            x = torch.randn(64, 256, device="cuda")
            y = f(x, w)
            if step % 3 == 2:
                y = g(y, w)
            y.sum().backward()
            w.grad = None
            del y
            if hook_child.TRACE: steps.end()
        print(torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
        if hook_child.TRACE: steps.finish()
    """
    untraced = run_untraced(program)
    traced = run_traced(program, tmp_path / "t.gmt")
    assert traced.stdout.splitlines()[:-1] == untraced.stdout.splitlines()
    check_steps(tmp_path / "t.gmt", traced)


def test_ipc(tmp_path: Path) -> None:
    # C31 (i): a tensor through a queue to a spawned process.
    script = tmp_path / "ipc.py"
    script.write_text(
        """\
import torch
import torch.multiprocessing as mp


def child(queue, back):
    x = queue.get()
    back.put((tuple(x.shape), x.dtype, x.device.index))
    del x


if __name__ == "__main__":
    import hook_child

    hook_child.start()
    context = mp.get_context("spawn")
    queue, back = context.Queue(), context.Queue()
    worker = context.Process(target=child, args=(queue, back))
    worker.start()
    x = torch.ones(300, 5, device="cuda")
    queue.put(x)
    print(back.get(timeout=60))
    worker.join()
    print(worker.exitcode)
    hook_child.stop()
""",
        encoding="utf-8",
    )
    untraced = run_untraced(script)
    traced = run_traced(script, tmp_path / "t.gmt")
    assert traced.stdout == untraced.stdout
    assert traced.stdout.splitlines()[-1] == "0"


def test_caching_switched_off(tmp_path: Path) -> None:
    program = """
        import torch
        import hook_child
        hook_child.start()
        x = torch.ones(1000, device="cuda")
        x.record_stream(torch.cuda.Stream())
        print(torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
        raw = torch.cuda.caching_allocator_alloc(100)
        torch.cuda.caching_allocator_delete(raw)
        del x
        hook_child.stop()
    """
    env = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    assert_same(program, tmp_path / "t.gmt", env=env)
    seen = replay(tmp_path / "t.gmt")
    assert not seen.counts[Kind.ALLOC] and not seen.counts[Kind.FREE]


def test_caching_switched_off_for_a_while(tmp_path: Path) -> None:
    program = """
        import torch
        import hook_child
        hook_child.start()
        steps = hook_child.Steps()
        before = torch.ones(1000, device="cuda")
        torch.cuda.memory.caching_allocator_enable(False)
        off = torch.ones(1000, device="cuda")
        torch.cuda.memory.caching_allocator_enable(True)
        after = torch.ones(1000, device="cuda")
        steps.end()
        torch.cuda.memory.caching_allocator_enable(False)
        del before, off, after
        torch.cuda.memory.caching_allocator_enable(True)
        steps.end()
        steps.finish()
    """
    seen = check_steps(tmp_path / "t.gmt", run_traced(program, tmp_path / "t.gmt"))
    assert seen.counts[Kind.ALLOC] == seen.counts[Kind.FREE] == 2


def test_empty_tensors_and_clones(tmp_path: Path) -> None:
    program = """
        import torch
        import hook_child
        hook_child.start()
        empty = torch.empty(0, device="cuda")
        empty.record_stream(torch.cuda.Stream())
        x = torch.ones(100, device="cuda")
        lazy = torch._lazy_clone(x)
        lazy.add_(1)
        x.untyped_storage().resize_(0)
        x.untyped_storage().resize_(4000)
        print(empty.data_ptr(), torch.cuda.memory_allocated(), x.untyped_storage().size())
        hook_child.stop()
    """
    assert_same(program, tmp_path / "t.gmt")
    assert replay(tmp_path / "t.gmt").unknown_frees == 0
