"""S3: many threads at once lose no event and record none twice."""

from pathlib import Path

import numpy as np
import pytest
from hook import run_traced
from hook_lines import check_steps, replay
from simgpu import result_of

from gpumemtrace.trace_file import TraceFile

pytestmark = pytest.mark.simgpu

THREADS = 8
MEETINGS = 400


def test_eight_threads(tmp_path: Path) -> None:
    pairs = 100_000
    program = f"""
        import torch
        import hook_child
        from gpumemtrace import _core, _torch_hook
        from gpumemtrace.capture import allocator

        allocator.ensure_installed()
        torch.ones(1, device="cuda")
        _core.session_start(hook_child.TRACE, metadata_json="{{}}", ring_bytes=128 << 20)
        _torch_hook.time_pairs(1000, {pairs}, {THREADS})
        hook_child.stop()
    """
    run_traced(program, tmp_path / "t.gmt")
    file = TraceFile(tmp_path / "t.gmt")
    columns = file.read()
    of_blocks = np.isin(columns["kind"], (1, 2))
    kind, address, thread, stream = (
        columns[name][of_blocks] for name in ("kind", "address", "thread", "stream")
    )
    allocs = kind == 1
    assert np.count_nonzero(allocs) == np.count_nonzero(~allocs) == THREADS * (pairs + 1)
    # At each address an alloc, its free, the next alloc, and so on.
    by_address = np.lexsort((np.arange(len(kind)), address))
    new_address = np.diff(address[by_address], prepend=0) != 0
    expected = np.where(np.cumsum(np.ones(len(kind), np.int64)) % 2 == 1, 1, 2)
    assert np.array_equal(kind[by_address], expected)
    assert np.all(kind[by_address][new_address] == 1)
    # Each thread on a stream of its own, each with its share.
    assert len(np.unique(thread)) == len(np.unique(stream[allocs])) == THREADS
    assert set(np.bincount(thread[allocs])[np.unique(thread)].tolist()) == {pairs + 1}


def test_totals_are_right_again_after_threads_met(tmp_path: Path) -> None:
    # Large requests make the hook read the totals; where threads meet, it leaves that for later.
    program = f"""
        import json
        import torch
        import hook_child
        from gpumemtrace import _torch_hook

        hook_child.start()
        kept = torch.ones(1000, device="cuda")
        _torch_hook.time_pairs(5 << 20, 4000, {THREADS})
        for _ in range(3):
            torch.ones(1000, device="cuda")
        stats = torch.cuda.memory_stats()
        hook_child.stop()
        print(json.dumps([stats[f"{{line}}_bytes.all.current"]
                          for line in ("requested", "allocated", "active", "reserved")]))
    """
    done = run_traced(program, tmp_path / "t.gmt")
    seen = replay(tmp_path / "t.gmt")
    assert list(seen.devices[0].now.values()) == result_of(done)
    assert len(seen.live) == 1 and not seen.unknown_frees and not seen.double_allocs


def test_each_meeting_of_threads_is_put_right(tmp_path: Path) -> None:
    # A reading is trusted only when nobody else was in flight: after each of many short meetings,
    # and one operation alone, the lines are torch's again.
    program = f"""
        import torch
        import hook_child
        from gpumemtrace import _torch_hook

        hook_child.start()
        kept = torch.ones(1000, device="cuda")
        steps = hook_child.Steps()
        for n in range({MEETINGS}):
            _torch_hook.time_pairs((5 << 20) + 70_000 * (n % 9), 4, 2)
            torch.ones(1000, device="cuda")
            steps.end()
        steps.finish()
    """
    done = run_traced(program, tmp_path / "t.gmt")
    check_steps(tmp_path / "t.gmt", done, peaks=False)
