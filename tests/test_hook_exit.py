"""However a program ends, it ends as it does without the hook: no crash, nothing new on stderr.

Torch frees memory after Python has gone, after ``main`` has returned, and in destructors of static
objects; the hook lives longer than all of them.
"""

from pathlib import Path

import pytest
from exit_paths import ENDINGS, STATUS, program_of
from hook import assert_same, run_traced
from simgpu import result_of

from gpumemtrace.trace_file import TraceFile

pytestmark = pytest.mark.simgpu


# C24.
@pytest.mark.parametrize("ending", ENDINGS)
def test_ten_ways_to_end(tmp_path: Path, ending: str) -> None:
    done = assert_same(program_of(ending), tmp_path / "t.gmt", check=False)
    assert done.returncode == STATUS.get(ending, 0), done.stderr
    assert TraceFile(tmp_path / "t.gmt").complete


def test_end_without_closing_the_session(tmp_path: Path) -> None:
    program = program_of("session_left_open")
    done = assert_same(program, tmp_path / "t.gmt", check=False)
    assert done.returncode == 0, done.stderr
    assert len(TraceFile(tmp_path / "t.gmt").chunks)


def test_graph_and_pool_alive_at_the_end(tmp_path: Path) -> None:
    # C25: twenty times; by fork, so that torch is imported once.
    program = """
        import json, os, sys
        import torch
        import hook_child

        statuses = []
        for run in range(20):
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                break
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        else:
            print(json.dumps(statuses))
            sys.exit()
        hook_child.TRACE += f".{run}"
        hook_child.start()
        x = torch.ones(1000, device="cuda")
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = torch.ones(1000, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x * 2
        graph.replay()
        if run % 2:
            hook_child.stop()
    """
    assert result_of(run_traced(program, tmp_path / "t.gmt")) == [0] * 20


def test_memory_outlives_its_session(tmp_path: Path) -> None:
    # C26: what is freed after a session is forwarded, and counted as skipped.
    program = """
        import gc
        import torch
        import hook_child
        from gpumemtrace import _core
        path = hook_child.TRACE
        for n in range(100):
            hook_child.TRACE = f"{path}.{n}"
            hook_child.start()
            t = torch.ones(1000 + n, device="cuda")
            stats = hook_child.stop()
            gc.collect()
            del t
            torch.cuda.empty_cache()
        print(_core.session_stats()["skipped"], torch.cuda.memory_reserved())
    """
    skipped, reserved = run_traced(program, tmp_path / "t.gmt").stdout.split()
    assert int(skipped) >= 100
    assert reserved == "0"


def test_forked_child_does_not_record(tmp_path: Path) -> None:
    program = """
        import os
        import torch
        import hook_child
        hook_child.start()
        x = torch.ones(1000, device="cuda")
        pid = os.fork()
        if pid == 0:
            del x  # goes through the hook; CUDA itself is of no use here
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        y = torch.ones(1000, device="cuda")
        del x, y
        print(hook_child.stop()["events"])
    """
    run_traced(program, tmp_path / "t.gmt")
    file = TraceFile(tmp_path / "t.gmt")
    kinds = file.read()["kind"].tolist()
    assert kinds.count(1) == kinds.count(2) == 2
