"""Processes on the simulated GPU: exits, forks, workers, memory shared between them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from simgpu import result_of, run_simulated

pytestmark = pytest.mark.simgpu

BACKWARD = """
import torch
model = torch.nn.Linear(100, 100).cuda()
model(torch.randn(8, 100, device="cuda")).sum().backward()
"""

EXITS = {
    "end of the script": ("", 0),
    "sys.exit": ("import sys; sys.exit(3)", 3),
    "an exception": ("raise ValueError('mine')", 1),
    "os._exit": ("import os; os._exit(5)", 5),
    "a signal": ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "Ctrl-C": ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
    "a live graph": (
        "graph = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(graph):\n    y = model(torch.randn("
        "8, 100, device='cuda'))",
        0,
    ),
}


@pytest.mark.parametrize("name", EXITS)
def test_the_scripts_own_exit_status(name: str) -> None:
    ending, status = EXITS[name]
    done = run_simulated(BACKWARD + ending, check=False)
    assert done.returncode == status, done.stderr
    assert "terminate called" not in done.stderr


def test_a_script_may_end_right_after_backward() -> None:
    """Autograd's threads are still busy then; that must not abort the process."""
    for _ in range(5):
        assert run_simulated(BACKWARD, check=False).returncode == 0


def test_forked_workers_load_data() -> None:
    done = run_simulated("""
        import json
        import torch
        data = torch.utils.data.TensorDataset(torch.randn(64, 16))
        torch.ones(1, device="cuda")
        loader = torch.utils.data.DataLoader(data, batch_size=16, num_workers=2, pin_memory=True)
        seen = []
        for batch, in loader:
            seen.append([batch.is_pinned(), batch.cuda(non_blocking=True).shape[0]])
        print(json.dumps(seen))
    """)
    assert result_of(done) == [[True, 16]] * 4


def test_a_forked_child_can_not_use_the_device() -> None:
    """As on a real GPU: CUDA does not survive fork()."""
    done = run_simulated("""
        import ctypes, json, os
        cuda = ctypes.CDLL(None)
        address = ctypes.c_void_p()
        first = cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(1 << 21))
        child = os.fork()
        if child == 0:
            os._exit(cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(1 << 21)))
        _, status = os.waitpid(child, 0)
        print(json.dumps([first, os.waitstatus_to_exitcode(status)]))
    """)
    assert result_of(done) == [0, 3]  # cudaErrorInitializationError


SHARING = """
import json
import torch
import torch.multiprocessing as mp

def consume(queue, answers):
    tensor = queue.get()
    answers.put((tensor.tolist(), str(tensor.device), torch.cuda.memory_allocated()))
    del tensor
    queue.get()

if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    consumer = context.Process(target=consume, args=(queue, answers))
    consumer.start()
    tensor = torch.tensor([1.0, 2.0, 3.0], device="cuda")
    queue.put(tensor)
    print(json.dumps(answers.get(timeout=60)))
    queue.put(None)
    consumer.join()
    assert consumer.exitcode == 0
"""


@pytest.mark.parametrize("conf", [None, "expandable_segments:True"])
def test_a_tensor_reaches_another_process(tmp_path: Path, conf: str | None) -> None:
    script = tmp_path / "share.py"
    script.write_text(SHARING)
    done = run_simulated(script, torch_conf=conf)
    assert result_of(done) == [[1.0, 2.0, 3.0], "cuda:0", 0]


def test_collectives_of_one_process_group() -> None:
    done = run_simulated(
        """
        import json
        import torch
        import torch.distributed as dist
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        x = torch.ones(1 << 20, device="cuda")
        dist.all_reduce(x)
        gathered = torch.empty(1 << 20, device="cuda")
        dist.all_gather_into_tensor(gathered, x)
        dist.barrier()
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
        model(torch.randn(8, 64, device="cuda")).sum().backward()
        dist.destroy_process_group()
        from gpumemtrace.capture.simulate import read_report
        print(json.dumps([entry["name"] for entry in read_report()]))
        """
    )
    assert "NCCL communicator" in result_of(done)


def test_monitoring_reads_device_memory_by_nvml() -> None:
    done = run_simulated("""
        import ctypes, json
        import torch
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        class Memory(ctypes.Structure):
            _fields_ = [(n, ctypes.c_ulonglong) for n in ("total", "free", "used")]
        def used():
            handle, memory = ctypes.c_void_p(), Memory()
            assert nvml.nvmlInit_v2() == 0
            assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
            assert nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
            return memory.used
        before = used()
        torch.cuda.synchronize()
        context = used()
        x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        name = ctypes.create_string_buffer(96)
        handle = ctypes.c_void_p()
        nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
        nvml.nvmlDeviceGetName(handle, name, 96)
        print(json.dumps([before, context, used() - context, name.value.decode()]))
    """)
    before, context, added, name = result_of(done)
    assert (before, added, name) == (0, 1 << 30, "NVIDIA H200")
    assert context > 0


def test_threads_have_devices_of_their_own() -> None:
    done = run_simulated(
        """
        import json, threading
        import torch
        seen = {}
        def work(device):
            torch.cuda.set_device(device)
            x = torch.empty(1 << 20, device="cuda")
            seen[device] = x.device.index
        threads = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(json.dumps([seen, torch.cuda.current_device()]))
        """,
        devices=2,
    )
    assert result_of(done) == [{"0": 0, "1": 1}, 0]
