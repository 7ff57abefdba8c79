"""Runs the Python examples of README.md and of some pages of docs/, as they stand.

python documented.py RECORDING.py README.py PHASES.py WHO.py: a file of examples for each page.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import torch

import gpumemtrace

model = torch.nn.Sequential(torch.nn.Linear(8, 8))
teacher = torch.nn.Sequential(torch.nn.Linear(8, 8))
x = torch.ones(4, 8)


def run_page(path: str, names: dict) -> None:
    exec(compile(Path(path).read_text(), path, "exec"), names)


def train(batch: torch.Tensor = x, steps: int = 2) -> None:
    model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(batch.cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


recording, readme, phases, who = sys.argv[1:]
run_page(recording, {"train": train})
run_page(readme, {})
with gpumemtrace.install("phases.gmt"):
    model.cuda()
    teacher.cuda()
    run_page(
        phases,
        {
            "gpumemtrace": gpumemtrace,
            "torch": torch,
            "train": lambda batch: train(batch, steps=1),
            "batches": iter(torch.utils.data.DataLoader(torch.ones(5, 8, device="cuda"))),
            "first": 10,
            "last": 12,
            "trainer": SimpleNamespace(generate=print, save=print),
            "cache": torch.empty(1000, device="cuda"),
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
            "teacher": teacher,
            "x": x.cuda(),
            "log": lambda loss: loss.sum(),
        },
    )


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(8, 8)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.head(batch)


def train_net() -> None:
    Net().cuda()(x.cuda()).sum().backward()


run_page(who, {"train": train_net})
