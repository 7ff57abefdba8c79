"""GIVEN runs on the simulated GPU that run out of memory, WHEN asked why, THEN it is said."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launch import RUN, python
from slow_allocator import runs
from synthetic import MIB, TraceBuilder

import gpumemtrace
from gpumemtrace.analysis.gap_results import GAPS
from gpumemtrace.analysis.oom import FailedRequest, find_oom
from gpumemtrace.analysis.segments import find_segments
from gpumemtrace.analysis.serving import serve
from gpumemtrace.cli.main import main
from gpumemtrace.schema import Kind
from gpumemtrace.trace import Trace

GIB = 1 << 30
PRELUDE = """
import torch, gpumemtrace
def take(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")
def fail(size):
    try:
        take(size)
    except torch.OutOfMemoryError:
        return
    raise SystemExit("it did not fail")
"""
SMALL_CARD = {"GPUMEMTRACE_SIM_MEMORY_BYTES": str(2 * GIB), "GPUMEMTRACE_SIM_CONTEXT_BYTES": "0"}


def request_of(program: str, folder: Path, **env: str) -> FailedRequest:
    python(
        *RUN, "-q", "-o", "t.gmt", "-c", PRELUDE + program, cwd=folder, env={**SMALL_CARD, **env}
    )
    oom = find_oom(gpumemtrace.open(folder / "t.gmt"))
    assert oom.failed == len(oom.requests) == 1
    return oom.requests[0]


@pytest.mark.simgpu
@pytest.mark.parametrize(
    ("cause", "program"),
    [
        ("capacity", "kept = take(1 << 30)\nfail(1536 << 20)"),
        (
            "fragmentation",
            "blocks = [take(90 << 20) for _ in range(20)]\n"
            "torch.cuda.empty_cache()\n"
            "del blocks\nwhole = [take(300 << 20) for _ in range(6)]\n"
            "whole = None\n"
            "halves = [(take(40 << 20), take(45 << 20)) for _ in range(20)]\n"
            "kept = [a for a, _ in halves]\ndel halves\n"
            "fail(900 << 20)",
        ),
        (
            "other_stream",
            "with torch.cuda.stream(torch.cuda.Stream()):\n"
            "    a = take(700 << 20)\n    del a\n    kept = take(20 << 20)\n"
            "    more = take(20 << 20)\n"
            "fail(1500 << 20)",
        ),
        (
            "private_pool",
            "pool = torch.cuda.MemPool()\n"
            "with torch.cuda.use_mem_pool(pool):\n    a = take(1200 << 20)\n    del a\n"
            "fail(1500 << 20)",
        ),
        (
            "outside",
            "import ctypes, time\nx = take(1 << 20)\ntime.sleep(0.2)\np = ctypes.c_void_p()\n"
            "ctypes.CDLL(None).cudaMalloc(ctypes.byref(p), ctypes.c_size_t(1 << 30))\n"
            "time.sleep(0.2)\ny = take(1 << 20)\nfail(1500 << 20)",
        ),
        ("limit", "torch.cuda.set_per_process_memory_fraction(0.25)\nfail(1 << 30)"),
    ],
)
def test_each_cause(cause: str, program: str, tmp_path: Path) -> None:
    request = request_of(program, tmp_path)
    assert request.cause == cause, request
    assert request.device_free_bytes is not None
    if cause != "limit":
        assert request.missing_bytes == request.needed_bytes - request.device_free_bytes > 0
    if cause != "capacity":
        (helped,) = [found for found in request.helps if found.about == cause]
        assert helped.is_enough


@pytest.mark.simgpu
def test_private_pools_go_by_pytorchs_names(tmp_path: Path) -> None:
    program = (
        "pool = torch.cuda.MemPool()\n"
        "with torch.cuda.use_mem_pool(pool):\n    a = take(500 << 20)\n    del a\n"
        "graph = torch.cuda.CUDAGraph()\n"
        "with torch.cuda.graph(graph):\n    a = take(700 << 20)\n    del a\n"
        "print(graph.pool(), pool.id)\n"
        "open('ids', 'w').write(f'CUDA graph {graph.pool()}, MemPool {pool.id}')\n"
        "fail(1500 << 20)"
    )
    request = request_of(program, tmp_path)
    (helped,) = [found for found in request.helps if found.about == "private_pool"]
    named = (tmp_path / "ids").read_text()
    assert helped.evidence == f"1.172 GiB free in private pools: {named}"


@pytest.mark.simgpu
def test_outside_pytorch(tmp_path: Path) -> None:
    # C76: the cache fills the card, then NCCL can't have its buffers.
    program = PRELUDE + (
        "import time, torch.distributed as dist\n"
        "x = take(1 << 20)\ncache = [take(100 << 20) for _ in range(19)]\ndel cache\n"
        "time.sleep(0.2)\n"
        'dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)\n'
        "dist.all_reduce(x)"
    )
    env = {**SMALL_CARD, "GPUMEMTRACE_SIM_NCCL_BYTES": str(600 * MIB)}
    done = python(*RUN, "-q", "-o", "t.gmt", "-c", program, cwd=tmp_path, env=env, check=False)
    assert done.returncode == 1
    oom = find_oom(gpumemtrace.open(tmp_path / "t.gmt"))
    assert oom.failed == 0
    assert oom.outside is not None
    assert oom.outside.device_free_bytes < 200 * MIB
    assert oom.outside.cached_bytes >= 1900 * MIB


@pytest.mark.simgpu
def test_numbers_add_up_where_a_request_fails(tmp_path: Path) -> None:
    # C35: with memory outside, a cache in pieces, rounding and a pending free all at once.
    program = """
import time, ctypes
blocks = [take(90 << 20) for _ in range(8)]
odd = [take(3001) for _ in range(100)]
del blocks[::2]
p = ctypes.c_void_p()
ctypes.CDLL(None).cudaMalloc(ctypes.byref(p), ctypes.c_size_t(300 << 20))
time.sleep(0.2)
fail(1500 << 20)
"""
    request = request_of(program, tmp_path)
    gaps = request.gaps
    assert gaps is not None and gaps.capacity == 2 * GIB
    lines = [gaps.requested, gaps.allocated, gaps.active, gaps.reserved, gaps.device_used]
    assert lines == sorted(lines) and lines[-1] <= gaps.capacity
    assert gaps.requested + sum(getattr(gaps, name) for name in GAPS) == gaps.capacity
    assert gaps.outside == 300 * MIB and gaps.rounding == 100 * (3072 - 3001)
    assert sum(group.total_bytes for group in request.groups) == gaps.requested
    assert request.device_free_bytes == gaps.device_free + 4 * 90 * MIB  # the flush


@pytest.mark.simgpu
def test_what_the_request_found(tmp_path: Path) -> None:
    # C49: request, device free, cached, the largest block, how many segments can go back.
    program = """
kept = [take(300 << 20) for _ in range(3)]
idle = [take(200 << 20) for _ in range(4)]
whole = take(100 << 20)
del whole
pinned, beside = take(30 << 20), take(70 << 20)
del idle, beside
fail(1536 << 20)
"""
    request = request_of(program, tmp_path)
    assert request.found is not None
    assert asdict(request.found) == {
        "outcome": "fails",
        "request_bytes": 1536 * MIB,
        "stream": 0,
        "device_free_bytes": (2048 - 900 - 800 - 100) * MIB,
        "cached_bytes": 870 * MIB,
        "largest_cached_bytes": 200 * MIB,
        "releasable_segments": 4,
        "releasable_bytes": 800 * MIB,
    }


@pytest.mark.simgpu
def test_it_is_the_training_that_tells_what_would_help(tmp_path: Path) -> None:
    program = """
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048, bias=False) for _ in range(8)]).cuda()
optimizer = torch.optim.Adam(model.parameters(), fused=True)
for rows in (64, 64, 1 << 18):
    model(torch.zeros(rows, 2048, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    done = python(
        *RUN,
        "-q",
        "-o",
        "t.gmt",
        "-c",
        PRELUDE + program,
        cwd=tmp_path,
        env=SMALL_CARD,
        check=False,
    )
    assert done.returncode == 1 and "OutOfMemoryError" in done.stderr
    oom = gpumemtrace.open(tmp_path / "t.gmt").oom()
    assert oom.failed == 1 and oom.died_of_it and oom.outside is None
    (request,) = oom.requests
    weight = 2048 * 2048 * 4
    assert (request.cause, request.place.step) == ("capacity", 2)
    groups = {(g.category, g.size_bytes, g.blocks): g for g in request.groups}
    assert groups["parameter", weight, 8].first_step == 0
    assert groups["optimizer_state", weight, 16].phase == "optimizer"
    helps = {found.change: found.size_bytes for found in request.helps}
    state = 16 * weight + 8 * 512  # each parameter's two, and its count of steps
    assert helps["shard the optimizer's state (ZeRO, FSDP)"] == state // 2
    assert helps["halve the batch or the sequence length"] == request.request_bytes // 2
    assert helps["shard the parameters (FSDP)"] == 4 * weight
    assert not any(found.size_bytes > 2 * GIB for found in request.helps)


@pytest.mark.simgpu
def test_what_a_list_keeps_is_named_first(tmp_path: Path) -> None:
    program = """
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters())
kept = []
while True:
    x = torch.zeros(1 << 18, 64).cuda()
    kept.append(x)
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    command = (*RUN, "-q", "-o", "t.gmt", "-c", PRELUDE + program)
    done = python(*command, cwd=tmp_path, env=SMALL_CARD, check=False)
    assert "OutOfMemoryError" in done.stderr
    (request,) = gpumemtrace.open(tmp_path / "t.gmt").oom().requests
    first, step, batch = request.helps[0], request.place.step, (1 << 18) * 64 * 4
    assert first.about == "kept" and first.is_enough
    assert first.size_bytes == (step - 2) * batch  # of steps 1 to step - 2
    assert f"blocks of steps 1 to {step - 2}, still in use in step {step}" in first.evidence


@pytest.mark.simgpu
def test_each_device_has_its_own(tmp_path: Path) -> None:
    program = """
import torch
def take(size, device):
    return torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}")
kept = take(600 << 20, 0), take(1200 << 20, 1)
for device in (1, 0, 1):
    try:
        with torch.cuda.device(device):
            take(1536 << 20, device)
    except torch.OutOfMemoryError:
        pass
"""
    python(*RUN, "-q", "-o", "t.gmt", "-c", program, cwd=tmp_path, env=SMALL_CARD, devices=2)
    oom = find_oom(gpumemtrace.open(tmp_path / "t.gmt"))
    assert [r.device for r in oom.requests] == [1, 0, 1] and not oom.died_of_it
    assert [r.device_free_bytes for r in oom.requests] == [848 * MIB, 1448 * MIB, 848 * MIB]
    assert [r.groups[0].size_bytes for r in oom.requests] == [1200 * MIB, 600 * MIB, 1200 * MIB]


@given(runs(), st.lists(st.integers(0, 10_000), max_size=30))
@settings(max_examples=60, deadline=None)
def test_random_failures_equal_their_definitions(run, places) -> None:
    allocator, _ = run
    rows = allocator.trace.rows
    for place in places:
        at = place % (len(rows) + 1)
        before = rows[at - 1]["time_ns"] if at else 0
        failure = {"kind": int(Kind.ALLOC_FAILED), "time_ns": before, "device": 0, "thread": 9}
        rows.insert(at, failure | {"size_bytes": 100 * MIB, "extra": 7 * MIB})
    trace = allocator.trace.trace()
    oom = find_oom(trace)
    assert oom.failed == len(places) and len(oom.requests) == min(len(places), 20)
    failed = [i for i, row in enumerate(rows) if row["kind"] == Kind.ALLOC_FAILED]
    for number, request in zip([*failed[:19], *failed[19:][-1:]], oom.requests, strict=True):
        live: dict[int, int] = {}
        for row in rows[:number]:
            if row["kind"] == Kind.ALLOC:
                live[row["address"]] = row["size_bytes"]
            elif row["kind"] == Kind.FREE:
                live.pop(row["address"], None)
        sizes = Counter(live.values())
        largest = sorted((size * count for size, count in sizes.items()), reverse=True)
        assert [group.total_bytes for group in request.groups] == largest[:10]
        assert all(sizes[group.size_bytes] == group.blocks for group in request.groups)
        if request.found is not None:
            assert request.found == serve(
                find_segments(trace, device=0, record=number - 1),
                100 * MIB,
                stream=0,
                device_free_bytes=request.found.device_free_bytes,
            )
        assert request.missing_bytes == 93 * MIB


def test_many_failures_and_the_last() -> None:
    builder = TraceBuilder().alloc(512, 100)
    for i in range(30):
        builder.add(Kind.ALLOC_FAILED, size_bytes=(i + 1) * MIB)
    oom = find_oom(builder.trace())
    assert oom.failed == 30
    assert [r.request_bytes // MIB for r in oom.requests] == [*range(1, 20), 30]
    assert {r.cause for r in oom.requests} == {"unknown"}
    assert oom.requests[0].device_free_bytes is oom.requests[0].missing_bytes is None


def test_a_failure_in_a_slice() -> None:
    builder = TraceBuilder().alloc(512, 100)
    for step in range(4):
        builder.alloc(4096 * (step + 1), 1000 + step)
        builder.add(Kind.ALLOC_FAILED, size_bytes=MIB, extra=512).step(step + 1)
    (request,) = find_oom(builder.trace().slice(steps=(2, 3))).requests
    assert request.place.step == 2
    assert [group.size_bytes for group in request.groups] == [1002, 1001, 1000, 100]


def test_an_error_that_is_not_for_want_of_memory() -> None:
    source = TraceBuilder().alloc(512, 100).trace()._source
    error = {"type": "RuntimeError", "message": "NCCL error: unhandled cuda error"}
    trace = Trace(replace(source, footer={"error": error}))
    assert find_oom(trace).outside is None


def test_what_was_free_when_it_failed_and_not_when_least_was() -> None:
    builder = TraceBuilder().phase("forward").alloc(512, 100).stats(100, 512, 512, 100 * MIB)
    for step, used in ((1, 1900), (2, 1500), (3, 800)):  # the card was nearly full in step 0
        builder.add(Kind.DEVICE_USED, size_bytes=used * MIB, stream=2000 * MIB, after_ns=10**8)
        builder.stats(100, 512, 512, 100 * MIB).step(step)
    source = builder.add(Kind.MARK, device=-1, after_ns=10**8).trace()._source
    error = {"type": "DistBackendError", "message": "NCCL error: Cuda failure 2 'out of memory'"}
    oom = find_oom(Trace(replace(source, footer={"error": error})))
    assert oom.outside is not None
    assert oom.outside.device_free_bytes == 1200 * MIB
    assert oom.outside.cached_bytes == 100 * MIB - 512
    place = oom.outside.place
    assert (place.step, place.event, place.phase) == (3, 1, ("forward",))
    assert place.time_ns == builder.time_ns


def test_nothing_failed(tmp_path, capsys):
    path = str(tmp_path / "a.gmt")
    TraceBuilder().alloc(512, 100).trace().save(path)
    assert main(["oom", path]) == 0
    assert capsys.readouterr().out == "no request failed\n"
    assert main(["oom", "--json", path]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "failed": 0,
        "died_of_it": False,
        "requests": [],
        "outside": None,
    }
