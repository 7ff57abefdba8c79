"""The segments replayed from a trace are those of torch's own snapshot at the same instant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hook import run_traced

import gpumemtrace
from gpumemtrace.analysis.segments import SegmentState, SegmentStream
from gpumemtrace.schema import Kind

pytestmark = pytest.mark.simgpu

HEAD = """
    import gc
    import random
    import torch
    import hook_child
    from segment_snapshots import Snapshots

    hook_child.start()
    snapshots = Snapshots()
    device = torch.device("cuda")

    def block(size):
        return torch.empty(size, dtype=torch.uint8, device=device)
"""

# Sizes of both pools, large blocks with rests that stay and rests that are split off.
MIXED = """
    choose = random.Random(SEED)
    live = []
    for i in range(400):
        size = choose.choice([1 << 12, 1 << 20, 1 << 23, 1 << 26])
        live.append(block(1 + choose.randrange(size)))
        while len(live) > 40 or (live and choose.random() < 0.4):
            del live[choose.randrange(len(live))]
        if i % 100 == 99:
            torch.cuda.empty_cache()
        if i % 7 == 0:
            snapshots.take()
"""

STREAMS = """
    choose = random.Random(3)
    streams = [torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    live = []
    for i in range(300):
        with torch.cuda.stream(choose.choice(streams)):
            live.append(block(1 + choose.randrange(choose.choice([1 << 16, 1 << 24]))))
        if choose.random() < 0.5:
            live[-1].record_stream(choose.choice(streams))
        while len(live) > 30 or (live and choose.random() < 0.3):
            del live[choose.randrange(len(live))]
        if i % 60 == 50:
            torch.cuda.empty_cache()
        if i % 5 == 0:
            snapshots.take()
"""

POOLS = """
    keep = [block(3 << 20), block(100)]
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = [block(40 << 20), block(1000), block(5 << 20)]
    snapshots.take()
    outside = block(30 << 20)
    del inside[0]
    snapshots.take()
    with torch.cuda.use_mem_pool(pool):
        inside.append(block(10 << 20))
    snapshots.take()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a = block(7 << 20)
        b = a + 1
        del a
        c = b * 2
    snapshots.take()
    del b, c
    torch.cuda.empty_cache()
    snapshots.take()
    del graph, inside, pool
    gc.collect()
    torch.cuda.empty_cache()
    snapshots.take()
"""

# 1 GiB of memory: the cache has to go, again and again; once in vain.
RETRIES = """
    choose = random.Random(5)
    live = []
    for i in range(60):
        size = choose.choice([60 << 20, 150 << 20, 1 << 16]) + choose.randrange(1 << 20)
        while sum(t.numel() for t in live) + size > 750 << 20:
            del live[choose.randrange(len(live))]
        live.append(block(size))
        snapshots.take()
    try:
        block(2 << 30)
    except torch.cuda.OutOfMemoryError:
        pass
    snapshots.take()
    live.append(block(1000))
    snapshots.take()
"""

TRAINING = """
    model = torch.nn.Sequential(*[torch.nn.Linear(700, 700) for _ in range(12)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(8):
        x = torch.empty(300 + 111 * step % 400, 700, device=device)
        model(x).square().mean().backward()
        snapshots.take()
        optimizer.step()
        optimizer.zero_grad()
        snapshots.take()
"""

EXPANDABLE = "expandable_segments:True"


def snapshots_of(program: str, path: Path, **options: Any) -> list[list[dict[str, Any]]]:
    tail = "\n    snapshots.finish()\n"
    done = run_traced(HEAD + program + tail, path, **options)
    taken: list[list[dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
    return taken


def as_snapshot(state: SegmentState) -> list[dict[str, Any]]:
    """A state in the words of `segment_snapshots`."""
    result = []
    segments, blocks = state.segments, state.blocks
    for i in range(len(segments)):
        mine = np.flatnonzero(blocks.segment == i)
        columns = (blocks.state, blocks.size_bytes, blocks.requested_bytes)
        result.append(
            {
                "device": state.device,
                "base": int(segments.base[i]),
                "size": int(segments.size_bytes[i]),
                "stream": int(segments.stream[i]),
                "pool": [int(segments.pool_first[i]), int(segments.pool_second[i])],
                "is_small": bool(segments.is_small[i]),
                "blocks": [
                    list(row) for row in zip(*(c[mine].tolist() for c in columns), strict=True)
                ],
            }
        )
    return result


def assert_same(path: Path, taken: list[list[dict[str, Any]]]) -> None:
    """At each step mark the replay holds what torch held."""
    stream = SegmentStream()
    seen = 0
    for batch in gpumemtrace.open(path).chunks():
        done = 0
        for row in batch.rows_of(Kind.STEP).tolist():
            stream.feed(batch, first=done, end=row)
            done = row
            state = stream.state(0)
            expected = sorted(taken[seen], key=lambda segment: segment["base"])
            assert as_snapshot(state) == expected, f"snapshot {seen}"
            assert state.known, f"snapshot {seen}"
            seen += 1
        stream.feed(batch, first=done, end=len(batch))
    assert seen == len(taken) > 1


@pytest.mark.parametrize("conf", [None, EXPANDABLE, "roundup_power2_divisions:4"])
@pytest.mark.parametrize("seed", [0, 1])
def test_mixed_sizes(tmp_path: Path, conf: str | None, seed: int) -> None:
    program = MIXED.replace("SEED", str(seed))
    taken = snapshots_of(program, tmp_path / "t.gmt", torch_conf=conf)
    assert_same(tmp_path / "t.gmt", taken)


@pytest.mark.parametrize("conf", [None, EXPANDABLE])
@pytest.mark.parametrize("program", [STREAMS, POOLS, TRAINING])
def test_programs(tmp_path: Path, conf: str | None, program: str) -> None:
    taken = snapshots_of(program, tmp_path / "t.gmt", torch_conf=conf)
    assert_same(tmp_path / "t.gmt", taken)


@pytest.mark.parametrize("conf", [None, EXPANDABLE, "garbage_collection_threshold:0.5"])
def test_retries(tmp_path: Path, conf: str | None) -> None:
    taken = snapshots_of(RETRIES, tmp_path / "t.gmt", torch_conf=conf, memory="1GiB")
    assert_same(tmp_path / "t.gmt", taken)
    assert len(gpumemtrace.open(tmp_path / "t.gmt").records(Kind.RETRY)["kind"]) >= 1


def test_a_session_that_begins_late(tmp_path: Path) -> None:
    program = MIXED.replace("SEED", "2")
    head = HEAD.replace("hook_child.start()", LATE)
    done = run_traced(head + program + "\n    snapshots.finish()\n", tmp_path / "t.gmt")
    assert_same(tmp_path / "t.gmt", json.loads(done.stdout.splitlines()[-1]))


LATE = """from gpumemtrace.capture import allocator
    allocator.ensure_installed()
    early = [torch.empty(n * 300_000, dtype=torch.uint8, device="cuda") for n in range(1, 40)]
    del early[::3]
    hook_child.start()"""
