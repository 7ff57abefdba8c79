"""Leaks one activation in each step, in a way that the argument says; the line is marked.

Of a compiled function torch keeps one line: that of its `def`.
"""

import sys
from pathlib import Path

import torch
from torch import nn

kept: list[torch.Tensor] = []
net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def eager(x):
    def inner(x):
        hidden = torch.tanh(net[0](x))  # leaks: eager
        kept.append(hidden.detach())
        return hidden

    return net[2](inner(x))


def keep_gradient(gradient):
    kept.append(gradient * 2)  # leaks: hook


def hook(x):
    hidden = net[0](x)
    hidden.register_hook(keep_gradient)
    return net[2](hidden)


def block(x):  # leaks: compiled
    hidden = torch.tanh(net[0](x))
    kept.append(hidden.detach())
    return hidden


compiled_block = torch.compile(block, backend="eager")


def compiled(x):
    return net[2](compiled_block(x))


forward = {"eager": eager, "hook": hook, "compiled": compiled}[sys.argv[1]]
for _ in range(12):
    # As many bytes as nothing else here has.
    forward(torch.ones(1013, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
source = Path(__file__).read_text().splitlines()
mark = f"# leaks: {sys.argv[1]}"
print(next(number for number, line in enumerate(source, 1) if line.endswith(mark)))
