"""GIVEN memory that a trace could not see all of, WHEN it is read, THEN it says so and no more."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hook import run_traced
from hook_lines import check_steps

import gpumemtrace
from gpumemtrace.analysis.check import check_trace
from gpumemtrace.analysis.lines import ALLOCATOR_LINES, LineStream
from gpumemtrace.schema import Kind

pytestmark = pytest.mark.simgpu


def test_blocks_from_before_a_session_are_matched(tmp_path: Path) -> None:
    # C81: a session that begins late tells of what is there, and knows it when it goes.
    program = """
        import torch
        import hook_child
        from gpumemtrace import _core

        hook_child.start()
        before = [torch.ones(1000 * (i + 1), device="cuda") for i in range(20)]
        hook_child.stop()
        _core.session_start(hook_child.TRACE + ".late", metadata_json="{}")
        steps = hook_child.Steps()
        steps.end()
        del before[:15]
        after = torch.ones(1000, device="cuda")
        steps.end()
        steps.finish()
    """
    done = run_traced(program, tmp_path / "t.gmt")
    late = tmp_path / "t.gmt.late"
    check_steps(late, done, peaks=False)
    trace = gpumemtrace.open(late)
    lifetimes = trace.lifetimes()
    old = lifetimes.is_from_before
    assert old.tolist() == [True] * 20 + [False]
    assert sorted(lifetimes.size_bytes[old].tolist()) == [4000 * (i + 1) for i in range(20)]
    assert np.count_nonzero(lifetimes.fate[old] == "freed") == 15
    assert lifetimes.unborn_frees == 0


def test_ten_thousand_events_that_were_lost(tmp_path: Path) -> None:
    # C82: counted exactly, with begin and end; uncertain up to the next reading, then exact again.
    program = """
        import json, os, time
        import torch
        import hook_child
        from gpumemtrace import _core
        from gpumemtrace.capture import allocator

        allocator.ensure_installed()
        _core.session_start(hook_child.TRACE, metadata_json="{}", ring_bytes=1 << 18,
                            drain_interval_ms=1500)
        kept = [torch.empty(1000, device="cuda") for _ in range(50)]
        spare = torch.empty(1000, device="cuda")
        del spare
        drained = _core.session_stats()["events"]
        while _core.session_stats()["events"] == drained:
            time.sleep(0.01)
        # The ring is empty now, and for a while nobody empties it again.
        name = _core.define_string("a mark")
        for _ in range(_core.session_stats()["ring_capacity"] + int(os.environ["MARKS"])):
            _core.push_mark(name)
        for _ in range(500):
            x = torch.empty(1000, device="cuda")
            del x
        lost = [torch.empty(500, device="cuda"), torch.empty(600, device="cuda")]
        time.sleep(2)
        steps = hook_child.Steps()
        for _ in range(4):
            more = torch.empty(3000, device="cuda")
            lost.append(torch.empty(100, device="cuda"))
            steps.end()
        stats = _core.session_stop("{}")
        print(json.dumps([stats["dropped"], stats["gaps"]]))
        print(json.dumps(steps.counters))
    """
    done = run_traced(program, tmp_path / "fewer.gmt", env={"MARKS": "0"})
    fewer, _ = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    assert fewer[0] >= 1002  # the allocs and frees, and what the recorder would have told of them
    marks = 10_000 - fewer[0]
    done = run_traced(program, tmp_path / "t.gmt", env={"MARKS": str(marks)})
    counts, counters = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    assert counts == [10_000, 1]
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    assert trace.dropped_events == 10_000
    gap = trace.records(Kind.GAP)
    assert gap["address"].tolist() == [10_000]
    lasted_ns = int(gap["extra"][0])
    assert 0 < lasted_ns < 2_000_000_000

    uncertain_after, after_steps = [], []
    for batch, lines in LineStream(trace):
        kind = batch.raw["kind"]
        for i in range(len(batch)):
            if kind[i] == Kind.GAP or (uncertain_after and lines.device[i] == 0):
                uncertain_after.append(bool(lines.uncertain[i]))
            if lines.device[i] == 0:
                last = {name: int(lines.values[name][i]) for name in ALLOCATOR_LINES}
            if kind[i] == Kind.STEP:
                after_steps.append(last)
    assert True in uncertain_after
    is_certain = uncertain_after.index(False, 1)
    assert not any(uncertain_after[is_certain:])
    told = [
        {name: step["0"][f"{name}_bytes.current"] for name in ALLOCATOR_LINES} for step in counters
    ]
    assert after_steps == told
    assert check_trace(trace).verdict == "good"


def test_memory_that_another_process_holds(tmp_path: Path) -> None:
    # C37: what was shared and let go of here is in use until the consumer gives it back.
    script = tmp_path / "ipc.py"
    script.write_text(
        """\
import time
import torch
import torch.multiprocessing as mp


def child(queue, back, done):
    x = queue.get()
    back.put(x.shape)
    done.wait()
    del x


if __name__ == "__main__":
    import hook_child

    hook_child.start()
    context = mp.get_context("spawn")
    queue, back, done = context.Queue(), context.Queue(), context.Event()
    worker = context.Process(target=child, args=(queue, back, done))
    worker.start()
    x = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
    queue.put(x)
    back.get(timeout=60)
    del x
    y = torch.empty(1000, device="cuda")
    del y
    time.sleep(0.3)
    print(torch.cuda.memory_allocated())
    hook_child.stop()
    done.set()
    worker.join()
""",
        encoding="utf-8",
    )
    done = run_traced(script, tmp_path / "t.gmt")
    assert int(done.stdout.splitlines()[-1]) >= 3 << 20
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    lifetimes = trace.lifetimes()
    (shared,) = np.flatnonzero(lifetimes.size_bytes == 3 << 20)
    assert lifetimes.fate[shared] == "alive"
    age_ns = trace.time_span_ns[1] - int(trace.time_ns[lifetimes.birth_index[shared]])
    assert age_ns > 300_000_000
