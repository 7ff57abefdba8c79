"""Recordings of real runs (tests/data) as traces, with the allocator's own counters to compare.

GPT-2 124M and ResNet-50 on an H200, PyTorch 2.11: every alloc and free, the counters after each
cache miss, phase and step marks. Their clock's rate is not known: 1 tick counts as 1 ns here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from gpumemtrace.records import MemorySource, empty_records
from gpumemtrace.schema import Kind, PhaseFlags, StatsCause
from gpumemtrace.trace import Trace
from gpumemtrace.trace_file import Names

DATA = Path(__file__).parent.parent / "data"
PHASES = ("init", "data", "forward", "backward", "optimizer", "zero_grad")


def load(name: str) -> tuple[Trace, dict[str, Any]]:
    """Return a recording and its truth."""
    recorded = np.load(DATA / f"{name}.npz")
    source = MemorySource(records_of(recorded), names())
    return Trace(source), json.loads(bytes(recorded["truth"]))


def names() -> Names:
    return Names(phases={i: (0, phase) for i, phase in enumerate(PHASES, start=1)})


def records_of(recorded: Any) -> dict[str, np.ndarray]:
    kind = recorded["kind"].astype(np.int64)
    # Step 0 begins by itself; the recording ends with its last step.
    kept = np.flatnonzero(~((kind == 109) & (recorded["size"] == 0)))
    kind = kind[kept]
    column = {name: recorded[name][kept] for name in recorded.files if name != "truth"}
    is_stats, is_phase, is_step = kind == 20, (kind > 100) & (kind < 109), kind == 109

    records = empty_records(len(kind) + 1)
    body = {name: array[:-1] for name, array in records.items()}
    body["time_ns"][:] = column["t"] - column["t"][0]
    body["kind"][:] = np.select(
        [is_stats, is_phase, is_step], [Kind.STATS, Kind.PHASE, Kind.STEP], kind
    )
    body["device"][is_phase | is_step] = -1
    body["thread"][:] = np.where(kind > 100, 1, column["thread"])
    body["address"][:] = np.where(is_stats, column["dur"], column["addr"])
    body["size_bytes"][:] = np.where(is_phase, kind - 100, column["size"])
    body["stream"][:] = column["stream"]
    body["extra"][is_stats] = column["addr"][is_stats]
    body["flags"][is_phase] = PhaseFlags.ENTERED
    body["flags"][is_stats] = StatsCause.MISS
    records["kind"][-1] = Kind.STEP
    records["device"][-1] = -1
    records["thread"][-1] = 1
    records["time_ns"][-1] = records["time_ns"][-2]
    records["size_bytes"][-1] = np.count_nonzero(is_step) + 1
    return records
