"""What the training programs beside this file are made of: they allocate telltale sizes.

`note` says where the program is by the size of an allocation, so that a test sees in the trace
which phase that place was put in.
"""

from __future__ import annotations

from typing import Any

import torch
from telltale import SIZE
from torch import nn


def note(place: str) -> None:
    torch.empty(SIZE[place], dtype=torch.uint8, device="cuda")


class _NotedBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        note("backward")
        return gradient


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.activation = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        note("checkpointed")
        return self.activation(self.linear(x))


class Model(nn.Module):
    def __init__(self, checkpoint: Any = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.checkpoint = checkpoint

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        note("forward" if self.training and torch.is_grad_enabled() else "eval")
        for block in self.blocks:
            x = block(x) if self.checkpoint is None else self.checkpoint(block, x)
        return _NotedBackward.apply(x)


class Criterion(nn.Module):
    def forward(self, output: torch.Tensor) -> torch.Tensor:
        note("loss")
        return output.square().mean()


class NotedSGD(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        note("step")
        return super().step(closure)


def batch() -> torch.Tensor:
    note("batch")
    return torch.ones(4, 16, device="cuda", requires_grad=True)
