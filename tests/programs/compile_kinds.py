"""Compile a module, a function with one, a step, and a module in place; print what it took."""

import json
import warnings

import torch
from telltale import SIZE
from torch import nn
from witness import note

seen = []
warnings.showwarning = lambda message, *args, **kwargs: seen.append(str(message))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x):
        return self.net(x)


x = torch.ones(4, 8, device="cuda")
compiled = torch.compile(Net().cuda(), backend="eager", fullgraph=True)
function_net = Net().cuda()


@torch.compile(backend="eager", fullgraph=True)
def loss_of(x):
    return function_net(x).square().mean()


@torch.compile(backend="eager", fullgraph=True)
def augment(x):
    return x * 2


in_place = Net().cuda()
in_place.compile(backend="eager")
broken = Net().cuda()


@torch.compile(backend="eager")
def with_a_break(x):
    y = broken(x)
    torch._dynamo.graph_break()
    return broken(y).sum()


parameters = [*compiled.parameters(), *function_net.parameters(), *in_place.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1, foreach=False)


@torch.compile(backend="eager")
def optimizer_step():
    optimizer.step()


for _ in range(4):
    note("batch")
    x = augment(x)
    note("collate")
    compiled(x).sum().backward()
    loss = loss_of(x)
    note("loss")
    loss.backward()
    in_place(x).sum().backward()
    with torch.no_grad():
        with_a_break(x)
    note("eval")
    optimizer_step()
    note("after_step")
    optimizer.zero_grad()

counters = torch._dynamo.utils.counters
print(
    json.dumps(
        {
            "stats": {k: v for k, v in counters["stats"].items() if k != "calls_captured"},
            "breaks": sum(counters["graph_break"].values()),
            "recompiles": sum(counters["recompiles"].values()),
            "warnings": seen,
            "sizes": SIZE,
        }
    )
)
