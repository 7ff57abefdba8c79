"""Ten programs that end in different ways; for the simulated GPU's tests and for a real GPU's.

Each begins with a model that was trained for two steps, and leaves something behind. They use
`hook_child`: with ``HOOK_TRACE`` in the environment they are traced, without it not.
"""

from __future__ import annotations

import re
import signal
import textwrap

__all__ = ["ENDINGS", "STATUS", "program_of", "without_times"]

_BEGINNING = """
    import atexit, gc, os, signal, sys, threading, time
    import torch
    import hook_child
    hook_child.start()
    atexit.register(hook_child.stop)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        model(torch.randn(4, 32, device="cuda")).sum().backward()
        optimizer.step()
"""
ENDINGS = {
    "normal": "del model, optimizer",
    "sys_exit": "sys.exit(7)",
    "exception": "raise ValueError('the script is broken')",
    "live_tensors": "kept = [torch.ones(1 << 20, device='cuda') for _ in range(10)]",
    "live_in_cpp_static": """
        # cuBLAS workspaces live in a static map of torch's
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            y = torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")
        del model, optimizer, y
    """,
    "live_graph": """
        x = torch.ones(64, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x * 2 + 1
        graph.replay()
    """,
    "thread": """
        def work():
            time.sleep(0.3)
            torch.ones(1000, device="cuda") + 1

        threading.Thread(target=work).start()
    """,
    "nccl_group": """
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=1)
        x = torch.ones(1000, device="cuda")
        torch.distributed.all_reduce(x)
    """,
    "dataloader_workers": """
        data = torch.utils.data.TensorDataset(torch.randn(64, 8))
        loader = torch.utils.data.DataLoader(data, 4, num_workers=2, persistent_workers=True)
        batches = iter(loader)
        x = next(batches)[0].cuda()
    """,
    "ctrl_c": """
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        x = torch.ones(1000, device="cuda")
        time.sleep(30)
    """,
}
STATUS = {"sys_exit": 7, "exception": 1, "ctrl_c": -signal.SIGINT}


def program_of(ending: str) -> str:
    """Return the program, one of `ENDINGS` or ``session_left_open``, which ends the normal way."""
    rest = ENDINGS.get(ending, "atexit.unregister(hook_child.stop)")
    return textwrap.dedent(_BEGINNING) + textwrap.dedent(rest)


def without_times(stderr: str) -> str:
    """Take out what differs between any two runs: times and thread ids in torch's log lines."""
    return re.sub(r"(?m)^((?:\[rank\d+\]:)?\[[WE])\d{4} [\d:.]+ +\S*", r"\1", stderr)
