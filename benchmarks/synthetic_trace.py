"""Large traces that look like training: the same step again and again, addresses of period two.

Each step is forward (blocks pile up), backward (they go, gradients come), optimizer and zero_grad;
parameters and optimizer state are there from the start. Times jitter. With ``variable_length`` each
step has batches of another length: sizes scale with it, and addresses don't repeat. Written piece
by piece, so a trace of any size takes little memory.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gpumemtrace.schema import COLUMNS, Kind, PhaseFlags, StatsCause
from gpumemtrace.trace_file import FileWriter, Names

PHASES = ("data", "forward", "backward", "optimizer", "zero_grad")
MIB = 1 << 20
# Where blocks lie: one slot each, every second step in another range.
ADDRESS, SLOT, SLOTS_END = 0x7F0000000000, 8 * MIB, 1 << 40


def write_trace(
    path: Path,
    *,
    events: int,
    variable_length: bool = False,
    events_per_step: int = 2000,
    step_ms: float = 30.0,
    failed_request: bool = False,
    seed: int = 0,
    max_disk_bytes: int = 0,
    alter: Callable[[int, dict[str, Any]], dict[str, Any]] | None = None,
) -> int:
    """Write about ``events`` allocs and frees; return the number of steps.

    ``failed_request``: the last record is a request for 8 GiB that could not be served.
    ``max_disk_bytes``: see ``FileWriter``. ``alter``: is given the number and the records of each
    step, and returns those to write.
    """
    random = np.random.default_rng(seed)
    steps = max(events // events_per_step, 1)
    writer = FileWriter(path, time_resolution_ns=100, overwrite=True, max_disk_bytes=max_disk_bytes)
    writer.write_metadata({"script": "synthetic", "torch": "none", "steps": steps})
    writer.write_names(Names(phases={i: (0, name) for i, name in enumerate(PHASES, start=1)}))
    template = [_step(events_per_step, parity) for parity in (0, 1)]
    writer.append(_counters(len(PHASES)))
    step_ns = step_ms * 1e6
    for step in range(steps):
        records = {name: column.copy() for name, column in template[step % 2].items()}
        if variable_length:
            _vary(records, random)
        count = len(records["kind"])
        gaps = random.gamma(2.0, 1.0, count)
        records["time_ns"] = (step * step_ns + np.cumsum(gaps) / gaps.sum() * step_ns).astype("i8")
        records["size_bytes"][-1] = step + 1
        writer.append(alter(step, records) if alter is not None else records)
    if failed_request:
        writer.append(_failure(int(steps * step_ns)))
    writer.close({"reason": "closed"})
    return steps


def _vary(records: dict[str, Any], random: np.random.Generator) -> None:
    """Give a step another batch length and other addresses, in place."""
    is_event = np.isin(records["kind"], [Kind.ALLOC, Kind.FREE])
    slot = (records["address"][is_event] - ADDRESS) % SLOTS_END // SLOT
    order = random.permutation(np.arange(int(slot.max()) + 1))
    records["address"][is_event] = (ADDRESS + order[slot] * SLOT).astype("u8")
    large = records["size_bytes"] > MIB
    length = random.uniform(0.5, 1.0)
    records["size_bytes"][large] = (records["size_bytes"][large] * length).astype("i8")


def _counters(allocated_mib: int) -> dict[str, Any]:
    """The allocator's counters at the start: 1 GiB of parameters and state is in use."""
    records = {name: np.zeros(1, dtype) for name, dtype in COLUMNS.items()}
    records["kind"][0] = Kind.STATS
    records["flags"][0] = StatsCause.BASELINE
    for name in ("address", "size_bytes", "stream"):
        records[name][0] = 1024 * MIB
    records["extra"][0] = 3072 * MIB
    return records


def _failure(time_ns: int) -> dict[str, Any]:
    records = {name: np.zeros(1, dtype) for name, dtype in COLUMNS.items()}
    records["kind"][0] = Kind.ALLOC_FAILED
    records["time_ns"][0] = time_ns
    records["size_bytes"][0] = 8192 * MIB
    records["thread"][0] = 1
    return records


def _step(events: int, parity: int) -> dict[str, Any]:
    """Records of one step: activations, gradients, temporaries; the mark of the next step last."""
    pairs = events // 2
    activations, gradients = pairs // 3, pairs // 3
    temporaries = pairs - activations - gradients
    random = np.random.default_rng(1)
    sizes = random.choice(
        [512, 4096, 3 * MIB // 2, 2 * MIB, 6 * MIB], pairs, p=[0.25, 0.2, 0.3, 0.15, 0.1]
    )
    address = (ADDRESS + np.arange(pairs) * SLOT + parity * SLOTS_END).astype("u8")
    phase: list[tuple[int, int, int]] = []  # (kind, block, phase)
    act = np.arange(activations)
    grad = activations + np.arange(gradients)
    temp = activations + gradients + np.arange(temporaries)
    phase += [(1, b, 2) for b in act]
    for i in range(max(activations, gradients)):
        phase += [(1, grad[i], 3)] if i < gradients else []
        phase += [(2, act[activations - 1 - i], 3)] if i < activations else []
    phase += [pair for b in temp for pair in ((1, b, 4), (2, b, 4))]
    phase += [(2, b, 5) for b in grad]

    kind, block, at = np.array(phase).T
    starts = [0, *(np.flatnonzero(np.diff(at)) + 1)]
    count = len(kind) + len(starts) + 2
    place = np.arange(len(kind)) + 1 + np.searchsorted(starts, np.arange(len(kind)), side="right")
    records = {name: np.zeros(count, dtype) for name, dtype in COLUMNS.items()}
    records["thread"][:] = 1
    records["kind"][place] = kind
    records["address"][place] = address[block]
    records["size_bytes"][place] = np.where(kind == 1, sizes[block], 0)
    records["thread"][place[at == 3]] = 2
    marks = np.setdiff1d(np.arange(count), place)
    records["device"][marks] = -1
    records["kind"][marks[:-1]] = Kind.PHASE
    records["size_bytes"][marks[:-1]] = np.arange(1, len(PHASES) + 1)
    records["flags"][marks[:-1]] = PhaseFlags.ENTERED
    records["kind"][-1] = Kind.STEP
    return records
