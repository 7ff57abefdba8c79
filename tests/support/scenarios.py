"""Made-up runs with one thing each: out of memory, lost events, two devices."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from synthetic import MIB, TraceBuilder

from gpumemtrace.schema import Kind

GIB = 1024 * MIB
T4 = {"index": 0, "name": "Tesla T4", "memory_bytes": 15 * GIB}


def training(
    builder: TraceBuilder,
    *,
    steps: int,
    first: int = 0,
    device: int = 0,
    growth: int = 0,
    blocks: int = 20,
    tick_ns: int = 200_000,
    marks_steps: bool = True,
) -> TraceBuilder:
    """Steps of forward, backward, optimizer; every step keeps ``growth`` more bytes."""
    base = (device + 1) << 44
    for step in range(first, first + steps):
        used = _used(builder, device)
        builder.phase("data").add(Kind.DEVICE_USED, size_bytes=used, device=device)
        builder.phase("forward")
        for i in range(blocks):
            builder.alloc(base + (i << 32), 100 * MIB, device=device, after_ns=tick_ns)
            _grow(builder, device, 100 * MIB)
        builder.phase("backward")
        for i in reversed(range(blocks)):
            builder.alloc(base + (99 << 32), 60 * MIB, device=device, after_ns=tick_ns)
            _grow(builder, device, 60 * MIB)
            builder.free(base + (99 << 32), device=device, after_ns=tick_ns)
            _grow(builder, device, -60 * MIB)
            builder.free(base + (i << 32), device=device, after_ns=tick_ns)
            _grow(builder, device, -100 * MIB)
        builder.phase("optimizer")
        if growth:
            builder.alloc(base + ((1000 + step) << 32), growth, device=device)
            _grow(builder, device, growth)
        builder.phase("zero_grad", after_ns=10 * tick_ns)
        if marks_steps:
            builder.step(step + 1)
    return builder


_LIVE: WeakKeyDictionary[TraceBuilder, dict[int, list[int]]] = WeakKeyDictionary()


def _grow(builder: TraceBuilder, device: int, change: int) -> None:
    """Keep count; when more is in use than is reserved, the allocator takes another segment."""
    state = _LIVE.setdefault(builder, {}).setdefault(device, [0, 0])
    state[0] += change
    if state[0] > state[1]:
        state[1] = -(-state[0] // (500 * MIB)) * 500 * MIB
        builder.stats(state[0], state[0], state[0], state[1], device=device, after_ns=1000)


def _used(builder: TraceBuilder, device: int) -> int:
    return _LIVE.get(builder, {}).get(device, [0, 0])[1] + 430 * MIB


def out_of_memory() -> TraceBuilder:
    builder = TraceBuilder(
        run_record={
            "argv": ["train.py"],
            "devices": [T4],
            "simulated": {"gpu": "Tesla T4", "approximations": []},
        }
    )
    builder.phase("init").alloc(1 << 20, 2 * GIB, after_ns=5_000_000)
    _grow(builder, 0, 2 * GIB)
    training(builder, steps=7, growth=1600 * MIB)
    builder.phase("forward")
    builder.add(Kind.RETRY, size_bytes=4 * GIB)
    builder.add(Kind.ALLOC_FAILED, size_bytes=4 * GIB, extra=100 * MIB, after_ns=3_000_000)
    return builder.phase("", after_ns=4_000_000)


def died_of_oom() -> TraceBuilder:
    """The same, and the program ended with it; a request had failed before, without harm."""
    builder = out_of_memory()
    builder.phase("eval").add(Kind.ALLOC_FAILED, size_bytes=8 * GIB, extra=100 * MIB)
    builder.footer = {"error": {"type": "torch.OutOfMemoryError", "message": "CUDA out of memory"}}
    return builder


def lost_events() -> TraceBuilder:
    builder = TraceBuilder(strings={1: "epoch 2"})
    training(builder, steps=3)
    lost = {"address": 10_000, "size_bytes": 5 * GIB, "extra": 9_000_000}
    builder.add(Kind.GAP, **lost, device=-1, after_ns=15_000_000)
    for i in range(5):
        builder.alloc((5 << 44) + (i << 32), 50 * MIB, after_ns=1_000_000)
    used = _LIVE[builder][0]
    builder.stats(250 * MIB, 250 * MIB, 250 * MIB, used[1])
    builder.add(Kind.MARK, size_bytes=1, device=-1)
    return training(builder, steps=3, first=3)


def two_devices() -> TraceBuilder:
    builder = TraceBuilder(
        run_record={
            "devices": [
                {"index": i, "name": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 * GIB}
                for i in range(3)
            ]
        }
    )
    random = np.random.default_rng(0)
    for step in range(4):
        for device in random.permutation(2).tolist():
            blocks = 20 + 10 * device
            training(builder, steps=1, first=step, device=device, blocks=blocks, marks_steps=False)
        builder.step(step + 1)
    return builder
