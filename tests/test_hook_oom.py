"""Running out of memory: torch's own error, and a record of the request that failed."""

from pathlib import Path
from typing import Any

import pytest
from hook import assert_same, run_traced, run_untraced
from hook_lines import check_steps, events_of, replay
from simgpu import result_of

from gpumemtrace.schema import Kind

pytestmark = pytest.mark.simgpu


def failures(trace: Path) -> list[dict[str, Any]]:
    return [event for event in events_of(trace) if event["kind"] == Kind.ALLOC_FAILED]


def test_uncaught(tmp_path: Path) -> None:
    # C4: exit status and text are those of the untraced run. The trace stays open: it is the exit
    # path of the session that closes it.
    program = """
        import torch
        import hook_child
        hook_child.start()
        live = []
        while True:
            live.append(torch.ones(100 << 20, dtype=torch.uint8, device="cuda"))
    """
    env = {"TORCH_SHOW_CPP_STACKTRACES": "0"}
    done = assert_same(program, tmp_path / "t.gmt", memory="1GiB", check=False, env=env)
    assert done.returncode == 1
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 100.00 MiB" in done.stderr


def test_every_failure_is_recorded_once(tmp_path: Path) -> None:
    # C12: the exact request, and as many as torch counts.
    program = """
        import json
        import torch
        import hook_child
        hook_child.start()
        texts = []
        kept = torch.ones(1000, device="cuda")
        side = torch.cuda.Stream()
        free, total = torch.cuda.mem_get_info()
        for size in (10 * total, 12345678901, total + 1):
            try:
                torch.empty(size, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError as error:
                texts.append(str(error))
        with torch.cuda.stream(side):
            try:
                torch.cuda.caching_allocator_alloc(5 * total)
            except torch.OutOfMemoryError as error:
                texts.append(str(error))
        stats = torch.cuda.memory_stats()
        hook_child.stop()
        print(json.dumps([texts, stats["num_ooms"], stats["num_alloc_retries"], total,
                          side.cuda_stream]))
    """
    texts, ooms, retries, total, _ = result_of(run_untraced(program, memory="4GiB"))
    traced = run_traced(program, tmp_path / "t.gmt", memory="4GiB")
    *same, stream = result_of(traced)
    assert same == [texts, ooms, retries, total]
    failed = failures(tmp_path / "t.gmt")
    assert [event["size_bytes"] for event in failed] == [
        10 * total,
        12345678901,
        total + 1,
        5 * total,
    ]
    assert [event["stream"] for event in failed] == [0, 0, 0, stream]
    assert len(failed) == ooms == 4
    assert all(0 < event["extra"] < total for event in failed), "bytes free on the device"
    assert all(event["device"] == 0 and event["thread"] for event in failed)
    assert replay(tmp_path / "t.gmt").counts[Kind.RETRY] == retries


def test_flush_and_retry(tmp_path: Path) -> None:
    # C48: what the allocator does when the device is full but its cache is not.
    program = """
        import torch
        import hook_child
        hook_child.start()
        steps = hook_child.Steps()
        for step in range(3):
            small = [torch.ones(30 << 20, dtype=torch.uint8, device="cuda") for _ in range(25)]
            steps.end()
            del small
            large = torch.ones(600 << 20, dtype=torch.uint8, device="cuda")
            steps.end()
            del large
        print(torch.cuda.memory_stats()["num_alloc_retries"])
        steps.finish()
    """
    done = run_traced(program, tmp_path / "t.gmt", memory="1GiB")
    seen = check_steps(tmp_path / "t.gmt", done)
    retries = [event for event in events_of(tmp_path / "t.gmt") if event["kind"] == Kind.RETRY]
    assert len(retries) == int(done.stdout.splitlines()[0]) > 0
    assert all(event["extra"] > 0 for event in retries), "how long it took"
    assert [event["stream"] for event in retries] == list(range(1, len(retries) + 1))
    assert seen.counts[Kind.ALLOC_FAILED] == 0


def test_memory_fraction(tmp_path: Path) -> None:
    program = """
        import torch
        import hook_child
        hook_child.start()
        steps = hook_child.Steps()
        torch.cuda.set_per_process_memory_fraction(0.25)
        kept = torch.ones(100 << 20, dtype=torch.uint8, device="cuda")
        try:
            torch.ones(300 << 20, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            print(error)
        steps.end()
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.ones(300 << 20, dtype=torch.uint8, device="cuda")
        steps.end()
        steps.finish()
    """
    untraced = run_untraced(program, memory="1GiB")
    traced = run_traced(program, tmp_path / "t.gmt", memory="1GiB")
    assert traced.stdout.splitlines()[:-1] == untraced.stdout.splitlines()[:-1]
    seen = check_steps(tmp_path / "t.gmt", traced)
    assert seen.counts[Kind.ALLOC_FAILED] == 1


def test_observer_still_runs(tmp_path: Path) -> None:
    program = """
        import torch
        import hook_child
        hook_child.start()
        torch.ones(1, device="cuda")
        torch._C._cuda_attach_out_of_memory_observer(lambda *a: print("observed", a))
        try:
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            print(type(error), error)
        hook_child.stop()
    """
    done = assert_same(program, tmp_path / "t.gmt")
    assert "observed" in done.stdout
