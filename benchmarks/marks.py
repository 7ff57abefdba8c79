"""What marks cost: a phase, a step, a text; and the automatic phases, per training step.

    python benchmarks/marks.py [--json]

Needs torch, no GPU. The automatic phases are measured on the skeleton of a GPT-2 step: its tree of
150 modules, an optimizer, a DataLoader, a backward, but one-element tensors, so that the
microseconds between them show. With and without alternate; the figure of each part of the step is
the difference between the fastest times it ever took, and they add up to the whole.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import gpumemtrace
from gpumemtrace import _core
from gpumemtrace.capture.auto_phases import AutoPhases
from gpumemtrace.capture.steps import counter


@contextmanager
def recording(*, automatic: bool) -> Iterator[None]:
    """A session without an allocator hook: marks need none."""
    with tempfile.TemporaryDirectory() as folder:
        _core.session_start(str(Path(folder, "marks.gmt")), metadata_json="{}", ring_bytes=64 << 20)
        _core.begin_phases(_core.PhaseMode.AUTO if automatic else _core.PhaseMode.MANUAL)
        phases = AutoPhases(torch) if automatic else None
        counter.begin_session(lambda number: 100)
        try:
            yield
        finally:
            if phases is not None:
                phases.stop()
            _core.session_stop("{}")


def nothing() -> None:
    pass


def nanoseconds(function: Callable[[], object], *, calls: int = 2000, rounds: int = 200) -> float:
    """The fastest round's time per call, without the cost of calling a Python function."""
    empty = min(timeit.repeat(nothing, number=calls, repeat=rounds))
    return (min(timeit.repeat(function, number=calls, repeat=rounds)) - empty) / calls * 1e9


def with_phase() -> None:
    with gpumemtrace.phase("forward"):
        pass


def measure_marks() -> dict[str, float]:
    result = {"phase, no session": nanoseconds(with_phase)}
    with recording(automatic=False):
        result["phase, entered and left (two marks)"] = nanoseconds(with_phase)
        result["step"] = nanoseconds(gpumemtrace.step)
        result["mark"] = nanoseconds(lambda: gpumemtrace.mark("checkpoint saved"))
        result["now"] = nanoseconds(gpumemtrace.now)
    return result


class Skeleton(nn.Module):
    """``children`` modules within, each called once, nothing computed."""

    def __init__(self, *inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.ModuleList(inner)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for module in self.inner:
            x = module(x)
        return x


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


class Ones(Dataset[torch.Tensor]):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(1)

    def __len__(self) -> int:
        return 1 << 30


def gpt2_skeleton() -> nn.Module:
    """As many modules, as deep, as in transformers' GPT-2: 12 blocks of 12."""
    attention = [Skeleton(*(Skeleton() for _ in range(4))) for _ in range(12)]
    mlp = [Skeleton(*(Skeleton() for _ in range(4))) for _ in range(12)]
    blocks = [Skeleton(Skeleton(), a, Skeleton(), m) for a, m in zip(attention, mlp, strict=True)]
    return Skeleton(Skeleton(Skeleton(), Skeleton(), Skeleton(), *blocks, Scale()), Skeleton())


PARTS = ("next(loader)", "zero_grad()", "forward", "loss module", "backward()", "optimizer.step()")


def training_step() -> Callable[[], list[int]]:
    """Make a function that takes a step and returns the nanoseconds of each part."""
    model = gpt2_skeleton()
    criterion = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = iter(DataLoader(Ones(), batch_size=None))
    now = time.perf_counter_ns

    def step() -> list[int]:
        times = [now()]
        x = next(batches)
        times.append(now())
        optimizer.zero_grad()
        times.append(now())
        y = model(x)
        times.append(now())
        loss = criterion(y, x)
        times.append(now())
        loss.backward()
        times.append(now())
        optimizer.step()
        times.append(now())
        return [end - begin for begin, end in itertools.pairwise(times)]

    return step


def measure_automatic(rounds: int = 40, steps: int = 100) -> dict[str, float]:
    step = training_step()
    fastest = {automatic: [1 << 62] * len(PARTS) for automatic in (False, True)}
    for _ in range(rounds):
        for automatic, known in fastest.items():
            with recording(automatic=automatic):
                step()  # the first one tags what the optimizer holds
                times = [step() for _ in range(steps)]
            fastest[automatic] = [min(part) for part in zip(known, *times, strict=True)]
    added = [slow - fast for fast, slow in zip(fastest[False], fastest[True], strict=True)]
    return {
        "a skeleton step, no automatic phases": sum(fastest[False]),
        "automatic phases, added per step": sum(added),
        **{f"  of it {part}": one for part, one in zip(PARTS, added, strict=True)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    as_json = parser.parse_args().json
    torch.set_num_threads(1)
    result: dict[str, Any] = {**measure_marks(), **measure_automatic()}
    if as_json:
        print(json.dumps({name: round(value, 1) for name, value in result.items()}))
        return
    for name, value in result.items():
        print(f"{name:40} {value:12,.0f} ns")


if __name__ == "__main__":
    main()
