"""Scenarios that only a real GPU proves: what a careless allocator hook would break.

    python benchmarks/gpu_scenarios.py record_stream        # untraced
    gpumemtrace run benchmarks/gpu_scenarios.py graphs      # traced

Each prints one JSON line with what it saw; exit status 1 when a result is wrong.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import torch


def busy(milliseconds: float) -> None:
    """Keep the current stream busy."""
    torch.cuda._sleep(int(milliseconds * 1e6 * 1.5))


def record_stream(repeats: int = 200) -> dict[str, Any]:
    """S1: B reads x late; A drops x and fills a new tensor of its size. B must see x."""
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    wrong = pending = 0
    for _ in range(repeats):
        with torch.cuda.stream(a):
            x = torch.ones(4 << 20, device="cuda")
        b.wait_stream(a)
        with torch.cuda.stream(b):
            busy(2)
            total = x.sum()
        x.record_stream(b)
        with torch.cuda.stream(a):
            del x
            stats = torch.cuda.memory_stats()
            pending += stats["active_bytes.all.current"] > stats["allocated_bytes.all.current"]
            y = torch.full((4 << 20,), 7.0, device="cuda")
        torch.cuda.synchronize()
        wrong += total.item() != float(4 << 20)
        del y, total
    return {"repeats": repeats, "wrong": wrong, "seen_pending": pending, "ok": wrong == 0}


def graphs(repeats: int = 200) -> dict[str, Any]:
    """S2: replay must give the same bits whatever is allocated and filled outside the graph."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).cuda()
    x = torch.randn(256, 512, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (model(x) * 2).relu().sum(dim=1)
    graph.replay()
    torch.cuda.synchronize()
    expected = y.clone()
    wrong = 0
    for _ in range(repeats):
        filler = [torch.full((64 << 20,), 3.0, device="cuda") for _ in range(8)]  # 2 GiB
        graph.replay()
        torch.cuda.synchronize()
        wrong += not torch.equal(y, expected)
        del filler
    return {"repeats": repeats, "wrong": wrong, "ok": wrong == 0}


def contention(threads: int = 8, pairs: int = 100_000) -> dict[str, Any]:
    """S3: threads allocate and free on streams of their own, all at once."""
    from torch.cuda import caching_allocator_alloc, caching_allocator_delete

    streams = [torch.cuda.Stream() for _ in range(threads)]
    barrier = threading.Barrier(threads + 1)

    def work(stream: torch.cuda.Stream) -> None:
        handle = stream.cuda_stream
        barrier.wait()
        for _ in range(pairs):
            caching_allocator_delete(caching_allocator_alloc(4096, stream=handle))
        barrier.wait()

    workers = [threading.Thread(target=work, args=(s,)) for s in streams]
    for worker in workers:
        worker.start()
    barrier.wait()
    began = time.perf_counter()
    barrier.wait()
    seconds = time.perf_counter() - began
    stats = torch.cuda.memory_stats()
    return {
        "pairs": threads * pairs,
        "pairs_per_s": round(threads * pairs / seconds),
        "allocations": stats["allocation.all.allocated"],
        "frees": stats["allocation.all.freed"],
        "ok": stats["allocation.all.current"] == 0,
    }


def cudnn_benchmark() -> dict[str, Any]:
    """C20: the algorithm search asks the allocator for its largest cached block."""
    from torchvision.models import resnet18

    torch.backends.cudnn.benchmark = True
    model = resnet18().cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        loss = model(torch.randn(16, 3, 224, 224, device="cuda")).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"ok": bool(torch.isfinite(loss))}


def spike() -> dict[str, Any]:
    """C94: a 15 GiB spike of a few ms is the peak, whatever a poller would have seen."""
    x = torch.empty(15 << 30, dtype=torch.uint8, device="cuda")
    time.sleep(0.002)
    del x
    return {"peak": torch.cuda.max_memory_allocated(), "ok": True}


SCENARIOS = {f.__name__: f for f in (record_stream, graphs, contention, cudnn_benchmark, spike)}

if __name__ == "__main__":
    result = SCENARIOS[sys.argv[1]]()
    print(json.dumps({"scenario": sys.argv[1], **result}))
    sys.exit(0 if result["ok"] else 1)
