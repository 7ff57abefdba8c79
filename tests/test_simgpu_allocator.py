"""PyTorch's allocator settings and limits on the simulated GPU."""

from __future__ import annotations

import pytest
from simgpu import result_of, run_simulated

pytestmark = pytest.mark.simgpu

GIB = 1 << 30


def test_out_of_memory_is_torchs_own() -> None:
    """The error's type and text, the counters, and the process's share as NVML tells it."""
    done = run_simulated(
        """
        import json
        import torch
        held = []
        try:
            while True:
                held.append(torch.empty(1 << 28, device="cuda"))
        except torch.OutOfMemoryError as error:
            text = str(error)
        stats = torch.cuda.memory_stats()
        count = len(held)
        held.clear()
        torch.cuda.empty_cache()
        print(json.dumps([
            count, text, stats["num_ooms"], stats["num_alloc_retries"],
            torch.cuda.memory_reserved(), torch.cuda.mem_get_info(),
        ]))
        """,
        memory="8GiB",
    )
    count, text, ooms, retries, reserved, (free, total) = result_of(done)
    assert count == 8
    assert "CUDA out of memory. Tried to allocate 1024.00 MiB." in text
    assert "GPU 0 has a total capacity of 8.00 GiB of which 0 bytes is free." in text
    assert "this process has 8.00 GiB memory in use" in text
    assert (ooms, retries) == (1, 1)
    assert reserved == 0
    assert free == total == 8 * GIB


def test_a_retry_flushes_the_cache() -> None:
    done = run_simulated(
        """
        import json
        import torch
        held = [torch.empty(1 << 26, device="cuda") for _ in range(12)]
        held.clear()
        big = torch.empty(6 << 30, dtype=torch.uint8, device="cuda")
        stats = torch.cuda.memory_stats()
        counts = [stats["num_alloc_retries"], stats["num_ooms"]]
        print(json.dumps([*counts, torch.cuda.memory_reserved()]))
        """,
        memory="8GiB",
    )
    assert result_of(done) == [1, 0, 6 * GIB]


def test_memory_fraction_is_a_limit() -> None:
    done = run_simulated(
        """
        import json
        import torch
        torch.cuda.set_per_process_memory_fraction(0.25)
        torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        try:
            torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
            print(json.dumps("no error"))
        except torch.OutOfMemoryError as error:
            print(json.dumps(str(error)))
        """,
        memory="8GiB",
    )
    assert "2.00 GiB allowed" in result_of(done)


SEGMENTS = """
    import json
    import torch
    small = [torch.empty(1000, device="cuda") for _ in range(10)]
    large = [torch.empty(30 << 20, dtype=torch.uint8, device="cuda") for _ in range(4)]
    del large[1]
    grown = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
    used = torch.cuda.mem_get_info()
    segments = torch.cuda.memory_snapshot()
    reserved = torch.cuda.memory_reserved()
    print(json.dumps([
        torch.cuda.get_allocator_backend(), len(segments),
        [segment.get("is_expandable") for segment in segments], reserved, used[1] - used[0],
    ]))
"""


def test_expandable_segments() -> None:
    """One segment grows and shrinks: device memory used is what PyTorch has reserved."""
    done = run_simulated(SEGMENTS, memory="8GiB", torch_conf="expandable_segments:True")
    backend, segments, expandable, reserved, used = result_of(done)
    assert (backend, segments, expandable) == ("native", 2, [True, True])
    assert reserved == used > 170 << 20


def test_expandable_segments_run_out_of_memory_and_recover() -> None:
    done = run_simulated(
        """
        import json
        import torch
        held = []
        try:
            while True:
                held.append(torch.empty(1 << 28, device="cuda"))
        except torch.OutOfMemoryError:
            pass
        count = len(held)
        held.clear()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        print(json.dumps([count, torch.cuda.memory_reserved(), total - free]))
        """,
        memory="4GiB",
        torch_conf="expandable_segments:True",
    )
    # A GiB does not divide into the 20 MiB that a segment grows by: the fourth does not fit.
    assert result_of(done) == [3, 0, 0]


def test_the_async_backend() -> None:
    done = run_simulated(
        """
        import json
        import torch
        from gpumemtrace.capture.simulate import read_report
        tensors = [torch.empty(10 << 20, dtype=torch.uint8, device="cuda") for _ in range(5)]
        seen = [torch.cuda.get_allocator_backend(), torch.cuda.memory_allocated(),
                torch.cuda.memory_reserved()]
        tensors.clear()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        names = [entry["name"] for entry in read_report()]
        print(json.dumps([*seen, torch.cuda.memory_reserved(), "cudaMallocAsync" in names]))
        """,
        torch_conf="backend:cudaMallocAsync",
    )
    backend, allocated, reserved, after, is_told = result_of(done)
    assert backend == "cudaMallocAsync"
    assert allocated == 50 << 20
    assert reserved >= allocated
    assert after == 0
    assert is_told


RECORD_STREAM = """
    import json
    import torch
    side = torch.cuda.Stream()
    x = torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
    with torch.cuda.stream(side):
        y = x + 1
    x.record_stream(side)
    del x
    def pending():
        stats = torch.cuda.memory_stats()
        return stats["active_bytes.all.current"] - stats["allocated_bytes.all.current"]
    seen = [pending()]
    z = torch.empty(100, device="cuda")  # the allocator looks at its events
    seen.append(pending())
    torch.cuda.synchronize()
    z = torch.empty(100, device="cuda")
    seen.append(pending())
    print(json.dumps(seen))
"""


def test_record_stream_defers_the_free_until_the_allocator_looks() -> None:
    assert result_of(run_simulated(RECORD_STREAM)) == [8 << 20, 0, 0]


def test_with_lag_the_free_waits_for_the_other_stream() -> None:
    done = run_simulated(RECORD_STREAM, env={"GPUMEMTRACE_SIM_LAG": "1000"})
    assert result_of(done) == [8 << 20, 8 << 20, 0]


def test_mem_pool() -> None:
    done = run_simulated("""
        import json
        import torch
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            z = torch.empty(1 << 24, device="cuda")
        segments = [
            segment["total_size"] for segment in torch.cuda.memory_snapshot()
            if tuple(segment["segment_pool_id"]) == tuple(pool.id)
        ]
        print(json.dumps(segments))
    """)
    assert result_of(done) == [64 << 20]


def test_two_devices_are_apart() -> None:
    done = run_simulated(
        """
        import json
        import torch
        a = torch.ones(1 << 20, device="cuda:0")
        b = a.to("cuda:1")
        with torch.cuda.device(1):
            c = torch.empty(1 << 22, device="cuda")
        model = torch.nn.Linear(256, 256).to("cuda:1")
        model(torch.randn(8, 256, device="cuda:1")).sum().backward()
        del model
        print(json.dumps([
            torch.cuda.device_count(), str(c.device), torch.cuda.can_device_access_peer(0, 1),
            torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1),
            [torch.cuda.get_device_properties(i).name for i in range(2)],
        ]))
        """,
        devices=2,
        gpu="a100-40gb",
    )
    count, device, peer, first, second, names = result_of(done)
    assert (count, device, peer) == (2, "cuda:1", True)
    assert first == 4 << 20
    assert second >= 20 << 20
    assert names == ["NVIDIA A100-SXM4-40GB"] * 2


@pytest.mark.parametrize(("visible", "names"), [("1", ["cuda:0"]), ("2,0", ["cuda:0", "cuda:1"])])
def test_visible_devices(visible: str, names: list[str]) -> None:
    done = run_simulated(
        """
        import json
        import torch
        print(json.dumps([f"cuda:{i}" for i in range(torch.cuda.device_count())]))
        """,
        devices=3,
        env={"CUDA_VISIBLE_DEVICES": visible},
    )
    assert result_of(done) == names


def test_no_visible_device() -> None:
    code = "import torch; print(int(torch.cuda.is_available()))"
    assert result_of(run_simulated(code, env={"CUDA_VISIBLE_DEVICES": ""})) == 0


def test_context_memory_is_in_use_before_the_first_tensor() -> None:
    done = run_simulated("""
        import json
        import torch
        torch.cuda.init()
        free, total = torch.cuda.mem_get_info()
        print(json.dumps([free, total]))
    """)
    # As recorded on an H200: tests/data/cudamalloc_h200_process1.txt.
    assert result_of(done) == [149_557_477_376, 150_109_880_320]


def test_large_models_do_not_take_the_hosts_memory() -> None:
    done = run_simulated("""
        import json
        import resource
        import torch
        with torch.device("cuda"):
            model = torch.nn.Linear(60_000, 60_000)
        small = torch.nn.Linear(8000, 8000).cuda()
        small.cpu()
        tensor = torch.zeros(20 << 30, dtype=torch.uint8, device="cuda")
        copy = tensor.clone()
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps([torch.cuda.memory_allocated(), peak_kib]))
    """)
    allocated, peak_kib = result_of(done)
    assert allocated > 50 << 30
    assert peak_kib < 2 << 20
