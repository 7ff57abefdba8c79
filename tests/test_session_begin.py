"""A session that begins beside allocating threads: each block is in its baseline or an event.

Where that can't be had, the file says so, and nobody takes it for a damaged one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from simgpu import result_of, run_simulated

import gpumemtrace
from gpumemtrace.analysis.check import check_trace
from gpumemtrace.analysis.losses import find_losses
from gpumemtrace.schema import Kind, StatsCause

pytestmark = pytest.mark.simgpu

BESIDE_THREADS = """
    import random, sys, threading, time
    import torch, gpumemtrace

    gpumemtrace.install("first.gmt").close()
    kept = [torch.ones(1000 + i, device="cuda") for i in range(50)]
    sys.setswitchinterval(0.0002)
    over = threading.Event()

    def work(seed):
        chosen, mine = random.Random(seed), []
        while not over.is_set():
            size = chosen.choice([100, 3000, 70_000, 1_500_000])
            mine.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            if len(mine) > 20:
                mine.pop(chosen.randrange(20))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for n in range(40):
        with gpumemtrace.install(f"{n}.gmt", phases=None):
            time.sleep(0.003)
    over.set()
    for thread in threads:
        thread.join()
"""


def test_each_block_is_in_the_baseline_or_an_event(tmp_path: Path) -> None:
    run_simulated(BESIDE_THREADS, cwd=tmp_path)
    seamless = busy = 0
    for n in range(40):
        trace = gpumemtrace.open(tmp_path / f"{n}.gmt")
        result = check_trace(trace)
        assert result.verdict == "good", (n, result.diagnostics[:3])
        if len(trace.records(Kind.GAP)["event"]):
            continue  # a thread had lost its core for 100 ms
        seamless += 1
        busy += result.allocs > 150
        assert result.unseen_allocs == 0
        stats = trace.records(Kind.STATS)
        (baseline,) = stats["event"][stats["flags"] == StatsCause.BASELINE].tolist()
        assert trace.records(Kind.ALLOC)["event"][49] < baseline
    assert seamless > 30
    assert busy > 5, "the threads did nothing meanwhile"


# Sessions whose baseline can't name the blocks in use: a thread that does not come out of the
# allocator, torch's history switched on (a snapshot would show in it), too many threads to watch.
UNKNOWN = """
    import json, threading, time
    import torch, gpumemtrace

    gpumemtrace.install("first.gmt").close()
    took = []

    def session(name):
        kept = [torch.ones(1000, device="cuda") for _ in range(5)]
        begin = time.monotonic()
        with gpumemtrace.install(f"{name}.gmt", phases=None):
            took.append(time.monotonic() - begin)
            del kept
            torch.ones(3000, device="cuda")

    observed = threading.Event()

    def observer(*_):
        observed.set()
        time.sleep(0.5)

    def run_out():
        try:
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass

    torch._C._cuda_attach_out_of_memory_observer(observer)
    stuck = threading.Thread(target=run_out)
    stuck.start()
    observed.wait()
    session("stuck")
    stuck.join()

    torch.cuda.memory._record_memory_history()
    session("history")
    torch.cuda.memory._record_memory_history(None)

    barrier = threading.Barrier(71)

    def crowd():
        torch.ones(1, device="cuda")
        barrier.wait()
        barrier.wait()

    threads = [threading.Thread(target=crowd) for _ in range(70)]
    for thread in threads:
        thread.start()
    barrier.wait()
    session("crowd")
    barrier.wait()
    for thread in threads:
        thread.join()
    print(json.dumps(took))
"""


@pytest.mark.alone
def test_blocks_that_nobody_can_name_are_said_to_be_there(tmp_path: Path) -> None:
    # C60: no snapshot is taken that would have torch gather its stacks.
    took = result_of(run_simulated(UNKNOWN, cwd=tmp_path))
    assert max(took) < 0.4, "the session waited for the thread"
    for name in ("stuck", "history", "crowd"):
        trace = gpumemtrace.open(tmp_path / f"{name}.gmt")
        result = check_trace(trace)
        assert (result.verdict, result.unseen_allocs) == ("good", 5), (name, result.diagnostics)
        assert trace.records(Kind.GAP)["address"].tolist() == [0]
        assert trace.dropped_events == 0
        assert find_losses(trace) == ()
