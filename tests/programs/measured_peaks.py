"""A training with evaluation inside it, on every device, that measures its own peaks by resetting.

Prints per step, phase and device the highest ``memory_allocated``. ``evaluate(no_grad)`` keeps what
the model gave, as validation loops do.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator

import torch
from torch import nn

import gpumemtrace

DEVICES = range(torch.cuda.device_count())
measured: list[dict[str, list[int]]] = []


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    for device in DEVICES:
        torch.cuda.reset_peak_memory_stats(device)
    with gpumemtrace.phase(name):
        yield
    peaks = [torch.cuda.max_memory_allocated(device) for device in DEVICES]
    before = measured[-1].get(name, [0] * len(peaks))
    measured[-1][name] = [max(pair) for pair in zip(peaks, before, strict=True)]


def model_on(device: int) -> nn.Module:
    width = 400 + 100 * device
    layers = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(4)]
    return nn.Sequential(*layers).to(device)


def train(models: list[nn.Module], optimizers: list[torch.optim.Optimizer], step: int) -> None:
    with phase("data"):
        rows = 300 + 70 * step
        batches = [torch.randn(rows, 400 + 100 * d).to(d) for d in DEVICES]
    with phase("forward"):
        losses = [m(x).square().mean() for m, x in zip(models, batches, strict=True)]
    with phase("backward"):
        for loss in losses:
            loss.backward()
    with phase("optimizer"):
        for optimizer in optimizers:
            optimizer.step()
    with phase("zero_grad"):
        for optimizer in optimizers:
            optimizer.zero_grad()


def evaluate(models: list[nn.Module], rows: int) -> list[torch.Tensor]:
    return [m(torch.randn(rows, 400 + 100 * d).to(d)) for d, m in enumerate(models)]


def main(path: str, no_grad: bool) -> None:
    kept = []
    with gpumemtrace.install(path, phases="manual"):
        torch.cuda.init()
        measured.append({})
        with phase("init"):
            models = [model_on(device) for device in DEVICES]
            optimizers = [torch.optim.AdamW(model.parameters()) for model in models]
        for step in range(4):
            if step:
                measured.append({})
            with gpumemtrace.phase("train"):
                train(models, optimizers, step)
                if step % 2:
                    with phase("eval"), torch.set_grad_enabled(not no_grad):
                        kept.append(evaluate(models, 1500))
            gpumemtrace.step()
    print(json.dumps(measured))


if __name__ == "__main__":
    main(sys.argv[1], no_grad=sys.argv[2] == "no_grad")
