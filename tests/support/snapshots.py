"""Memory snapshots that PyTorch wrote on the simulated GPU, with its counters at that moment."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from simgpu import result_of, run_simulated

__all__ = ["VIEWER_OPCODES", "load", "record_snapshots", "store"]

# What the unpickler of PyTorch's viewer in the browser (MemoryViz.js) knows; protocols 2 to 4.
VIEWER_OPCODES = """
PROTO APPEND APPENDS BINFLOAT BINGET BININT BININT1 BININT2 BINPUT BINUNICODE DICT EMPTY_DICT
EMPTY_LIST EMPTY_TUPLE FRAME LIST LONG1 LONG_BINGET LONG_BINPUT MARK MEMOIZE NEWFALSE NEWTRUE
NONE SETITEM SETITEMS SHORT_BINUNICODE STOP TUPLE TUPLE1 TUPLE2 TUPLE3
"""

# Blocks from before the history, a block that waits for another stream, a flushed cache, an OOM.
_PROGRAM = """
import json, sys
import torch

folder, max_entries = sys.argv[1], int(sys.argv[2])
devices = range(torch.cuda.device_count())
early = [torch.nn.Linear(1000, 1000).cuda(d) for d in devices]
torch.cuda.memory._record_memory_history(**({"max_entries": max_entries} if max_entries else {}))
for d in devices:
    torch.cuda.reset_peak_memory_stats(d)
    model = torch.nn.Sequential(
        torch.nn.Linear(1000, 3000), torch.nn.ReLU(), torch.nn.Linear(3000, 1000)
    ).cuda(d)
    optimizer = torch.optim.AdamW(model.parameters())
    with torch.cuda.device(d):
        side = torch.cuda.Stream()
        for i in range(3):
            x = torch.randn(64, 1000, device="cuda")
            with torch.profiler.record_function("forward"):
                y = model(x).square().mean()
            y.backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.cuda.stream(side):
                z = torch.ones(3_000_000, device="cuda")
                z.record_stream(torch.cuda.default_stream())
            del z
        early[d] = None
        torch.cuda.empty_cache()
        sizes = (1, 513, 2**20, 5 * 2**20)
        kept = [torch.empty(n, dtype=torch.uint8, device="cuda") for n in sizes]
        try:
            torch.empty(2**45, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
torch.cuda.memory._dump_snapshot(f"{folder}/snapshot.pickle")
names = ("requested", "allocated", "active", "reserved")
stats = [torch.cuda.memory_stats(d) for d in devices]
print(json.dumps([
    {name: [s[f"{name}_bytes.all.{kind}"] for kind in ("current", "peak")] for name in names}
    for s in stats
]))
"""


def record_snapshots(
    folder: Path, *, max_entries: int = 0, devices: int = 1, torch_conf: str | None = None
) -> tuple[Path, list[dict[str, list[int]]]]:
    """Return a snapshot and, for each device, line -> [bytes at its end, peak]."""
    done = run_simulated(
        _PROGRAM, args=[str(folder), str(max_entries)], devices=devices, torch_conf=torch_conf
    )
    return folder / "snapshot.pickle", result_of(done)


def load(path: Path) -> dict[str, Any]:
    """Return a snapshot that this test wrote, by Python's own unpickler."""
    snapshot: dict[str, Any] = pickle.loads(path.read_bytes())
    return snapshot


def store(snapshot: object, path: Path, *, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(snapshot, protocol))
    return path
