"""Memory outside PyTorch's allocator, as a trace of the simulated GPU shows it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from launch import RUN, python
from simgpu import run_simulated

import gpumemtrace
from gpumemtrace.analysis.gaps import DeviceGaps, find_gaps
from gpumemtrace.schema import Kind

pytestmark = [pytest.mark.simgpu, pytest.mark.usefixtures("simulated_gpu")]

MIB, GIB = 1 << 20, 1 << 30
CONTEXT = 552_402_944  # the simulated H200's
INTERVAL_NS = 50_000_000

PRELUDE = """
import ctypes, time
import torch
import gpumemtrace

cuda = ctypes.CDLL(None)

def cuda_malloc(size):
    address = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size)) == 0
    return address

x = torch.ones(100 << 20, dtype=torch.uint8, device="cuda")
time.sleep(0.15)
"""


def trace_of(program: str, folder: Path, **env: str) -> tuple[gpumemtrace.Trace, DeviceGaps]:
    python(*RUN, "-q", "-o", "t.gmt", "-c", PRELUDE + program, cwd=folder, env=env)
    trace = gpumemtrace.open(folder / "t.gmt")
    (device,) = find_gaps(trace)
    assert all(found.is_harmless for found in device.breaks), device.breaks
    return trace, device


def test_cuda_malloc_by_ctypes(tmp_path: Path) -> None:
    # C72
    trace, device = trace_of(
        """
with gpumemtrace.phase("library"):
    time.sleep(0.1)
    gpumemtrace.mark("now")
    cuda_malloc(1 << 30)
    time.sleep(0.2)
""",
        tmp_path,
    )
    (at_ns,) = trace.records(Kind.MARK)["time_ns"].tolist()
    baseline, growth = device.outside
    assert baseline.outside_bytes == CONTEXT
    assert abs(growth.change_bytes - GIB) <= 2 * MIB
    assert 0 <= growth.after.time_ns - at_ns <= INTERVAL_NS + 20_000_000
    assert growth.phase == ("library",)
    assert (growth.gaps.allocated, growth.gaps.reserved) == (100 * MIB, 100 * MIB)
    samples = trace.records(Kind.DEVICE_USED)
    before = samples["size_bytes"][samples["time_ns"] < at_ns][-1]
    assert growth.gaps.device_used - before == growth.change_bytes


def test_baseline_is_the_process_less_reserved(tmp_path: Path) -> None:
    # C73
    trace, device = trace_of("", tmp_path)
    samples = trace.records(Kind.DEVICE_USED)
    assert device.own_is_known
    assert device.baseline.outside_bytes == samples["address"][-1] - 100 * MIB == CONTEXT


def test_process_groups(tmp_path: Path) -> None:
    # C74, C75: which phase made which communicator.
    _, device = trace_of(
        """
import torch.distributed as dist
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
for i in range(1, 5):
    with gpumemtrace.phase(f"pg{i}"):
        time.sleep(0.1)
        dist.all_reduce(x, group=dist.new_group([0]))
        time.sleep(0.1)
""",
        tmp_path,
        GPUMEMTRACE_SIM_NCCL_BYTES=str(600 * MIB),
    )
    assert device.outside_by_phase == {(f"pg{i}",): 600 * MIB for i in range(1, 5)}


def test_another_process(tmp_path: Path) -> None:
    # C78
    _, alone = trace_of("", tmp_path)
    for hidden in "01":
        folder = tmp_path / hidden
        folder.mkdir()
        env = {
            "GPUMEMTRACE_SIM_OTHER_BYTES": str(4 * GIB),
            "GPUMEMTRACE_SIM_HIDE_PROCESSES": hidden,
        }
        _, device = trace_of("", folder, **env)
        gaps, same = device.baseline.gaps, alone.baseline.gaps
        assert (gaps.reserved, gaps.allocated) == (same.reserved, same.allocated)
        assert gaps.device_used == same.device_used + 4 * GIB
        assert device.own_is_known is gaps.own_is_known is (hidden == "0")
        if hidden == "0":
            assert (gaps.outside, gaps.others, gaps.unattributed) == (CONTEXT, 4 * GIB, 0)
        else:
            assert (gaps.outside, gaps.others) == (CONTEXT + 4 * GIB, None)


def test_headroom(tmp_path: Path) -> None:
    # C77: the least that was free, with and without the cache, by phase.
    _, device = trace_of(
        """
free, total = torch.cuda.mem_get_info()
with gpumemtrace.phase("fill"):
    cache = torch.ones(free - (3 << 30), dtype=torch.uint8, device="cuda")
    del cache
    time.sleep(0.1)
torch.cuda.empty_cache()
with gpumemtrace.phase("after"):
    time.sleep(0.1)
    y = torch.ones(1 << 30, dtype=torch.uint8, device="cuda")
    time.sleep(0.1)
""",
        tmp_path,
    )
    fill, after = device.phases[("fill",)], device.phases[("after",)]
    # The allocator takes segments of 2 MiB's multiples.
    assert 3 * GIB - 2 * MIB <= fill["device_free"].size_bytes <= 3 * GIB
    assert fill["cached"].size_bytes > 100 * GIB
    assert after["device_free"].size_bytes > 100 * GIB
    assert device.highest["device_free"].place.phase == ("fill",)


def run(program: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return run_simulated(program, **options)


def test_nvml_lists_the_processes() -> None:
    program = """
        import ctypes, json, os, torch
        torch.ones(1, device="cuda")
        nvml = ctypes.CDLL(None)
        class Process(ctypes.Structure):
            _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong),
                        ("a", ctypes.c_uint), ("b", ctypes.c_uint)]
        handle, count = ctypes.c_void_p(), ctypes.c_uint(0)
        nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
        list_ = nvml.nvmlDeviceGetComputeRunningProcesses_v3
        room = list_(handle, ctypes.byref(count), None), count.value
        found = (Process * 8)()
        count.value = 8
        assert list_(handle, ctypes.byref(count), found) == 0
        mine = [p.used for p in found[:count.value] if p.pid == os.getpid()]
        others = [p.used for p in found[:count.value] if p.pid != os.getpid()]
        print(json.dumps([room, mine, others]))
    """
    env = {"GPUMEMTRACE_SIM_OTHER_BYTES": "4096"}
    assert json.loads(run(program, env=env).stdout) == [[7, 2], [CONTEXT + 2 * MIB], [4096]]
    env["GPUMEMTRACE_SIM_HIDE_PROCESSES"] = "1"
    assert json.loads(run(program, env=env).stdout) == [[0, 0], [], []]
