"""What marks cost: a phase, a step, a text; and the automatic phases, per training step.

    python benchmarks/marks.py [--json]

Needs torch, no GPU. The automatic phases are measured on the skeleton of a GPT-2 step: its tree of
150 modules, an optimizer, a DataLoader, a backward, but one-element tensors, so that the
microseconds between them show. With and without alternate; the figure is the difference of the
fastest steps.
"""

from __future__ import annotations

import argparse
import json
import tempfile
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
        counter.begin_session(lambda number: _core.count_step())
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


def training_step() -> Callable[[], None]:
    model = gpt2_skeleton()
    criterion = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Ones(), batch_size=None)
    batches = iter(loader)

    def step() -> None:
        x = next(batches)
        optimizer.zero_grad()
        loss = criterion(model(x), x)
        loss.backward()
        optimizer.step()

    return step


def measure_automatic(rounds: int = 40, steps: int = 100) -> dict[str, float]:
    step = training_step()
    fastest = {False: float("inf"), True: float("inf")}
    for _ in range(rounds):
        for automatic in fastest:
            with recording(automatic=automatic):
                step()  # the first one tags what the optimizer holds
                times = timeit.repeat(step, number=1, repeat=steps)
            fastest[automatic] = min(fastest[automatic], *times)
    return {
        "a skeleton step, no automatic phases": fastest[False] * 1e9,
        "automatic phases, added per step": (fastest[True] - fastest[False]) * 1e9,
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
