"""Training runs made up step by step, whose growth is known because it was put there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from synthetic import MIB, TraceBuilder

from gpumemtrace.trace import Trace

GIB = 1 << 30


class Run(TraceBuilder):
    """A loop of steps; blocks have names, and `keep` and `drop` say which of them lives."""

    def __init__(self, *, capacity_bytes: int | None = 16 * GIB) -> None:
        devices = [{"index": 0, "name": "card", "memory_bytes": capacity_bytes}]
        super().__init__(run_record={"devices": devices} if capacity_bytes else {})
        self.addresses: dict[Any, int] = {}
        self.next_address = 1 << 20
        self.sizes: dict[Any, int] = {}

    def keep(self, name: Any, size: int, **columns: int) -> None:
        self.addresses[name] = self.next_address
        self.sizes[name] = size
        self.alloc(self.next_address, size, **columns)
        self.next_address += 512

    def drop(self, name: Any, **columns: int) -> None:
        self.sizes.pop(name)
        self.free(self.addresses.pop(name), **columns)

    @property
    def live_bytes(self) -> int:
        return sum(-(-size // 512) * 512 for size in self.sizes.values())


def train(
    steps: int,
    *,
    forward: Callable[[Run, int], None] = lambda run, step: None,
    after: Callable[[Run, int], None] = lambda run, step: None,
    batch_bytes: Callable[[int], int] = lambda step: 8 * MIB,
    capacity_bytes: int | None = 16 * GIB,
    unfinished: bool = True,
) -> Run:
    """Parameters, activations, gradients that live until the next step, Adam's state.

    ``forward`` and ``after`` add what a test is about: within forward, and at the end of a step.
    """
    run = Run(capacity_bytes=capacity_bytes)
    run.phase("init")
    for i in range(4):
        run.keep(("parameter", i), 4 * MIB)
    for step in range(steps):
        run.phase("data")
        run.keep(("input", step), batch_bytes(step) // 16)
        run.phase("forward")
        run.keep(("activation", step), batch_bytes(step))
        forward(run, step)
        run.phase("backward")
        for i in range(4):
            if ("gradient", i) in run.addresses:
                run.drop(("gradient", i))
            run.keep(("gradient", i), 4 * MIB)
        run.drop(("activation", step))
        run.phase("optimizer")
        if step == 0:
            for i in range(4):
                run.keep(("state", i), 8 * MIB)
        run.phase("")
        after(run, step)
        if step:
            run.drop(("input", step - 1))
        run.step(step + 1)
    if unfinished:
        run.phase("forward").keep("unfinished", batch_bytes(steps))
    return run


def noise(share: float, *, base_bytes: int = 256 * MIB, seed: int = 1) -> Callable[[int], int]:
    """Batches whose memory varies by ``share`` up and down."""
    factors = np.random.default_rng(seed).uniform(1 - share, 1 + share, 100_000)
    return lambda step: int(base_bytes * factors[step])


def leak(
    size: int, *, first: int = 0, last: int = 1 << 40, every: int = 1
) -> Callable[[Run, int], None]:
    """A block per step (or every so many steps) that is never freed."""

    def leaks(run: Run, step: int) -> None:
        if first <= step < last and (step - first) % every == 0:
            run.keep(("leak", step), size)

    return leaks


def cleared_every(period: int, size: int = MIB) -> Callable[[Run, int], None]:
    """A list that gets a block per step and is cleared every ``period`` steps."""

    def sawtooth(run: Run, step: int) -> None:
        if step % period == 0:
            for name in [n for n in run.addresses if n[0] == "list"]:
                run.drop(name)
        run.keep(("list", step), size)

    return sawtooth


def growing_buffer(size: int) -> Callable[[Run, int], None]:
    """A buffer that is replaced by a larger one each step (torch.cat onto itself)."""

    def grows(run: Run, step: int) -> None:
        run.keep(("buffer", step), size * (step + 1))
        if step:
            run.drop(("buffer", step - 1))

    return grows


def with_reserved(trace_of: Run, reserved: Callable[[int], int]) -> Trace:
    """The run's trace, with the allocator's counters read before each step ends."""
    made = Run()
    made.run_record, made.phases = trace_of.run_record, trace_of.phases
    live: dict[int, int] = {}
    step = 0
    from gpumemtrace.schema import Kind

    for row in trace_of.rows:
        if row["kind"] == Kind.ALLOC:
            live[row["address"]] = -(-row["size_bytes"] // 512) * 512
        elif row["kind"] == Kind.FREE:
            live.pop(row["address"])
        elif row["kind"] == Kind.STEP:
            used = sum(live.values())
            made.stats(used, used, used, reserved(step))
            step += 1
        made.rows.append(row)
        made.time_ns = row["time_ns"]
    return made.trace()
