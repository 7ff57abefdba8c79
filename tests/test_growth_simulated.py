"""A leak in a real training loop on the simulated GPU, seen by a watchdog from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from launch import RUN, python
from synthetic import MIB

pytestmark = [pytest.mark.simgpu, pytest.mark.usefixtures("simulated_gpu")]

_PROGRAM = """
import sys
import torch

leaks = "leak" in sys.argv

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))
        self.seen = []

    def forward(self, x):
        if leaks:
            self.seen.append(torch.empty(1 << 18, device="cuda"))
        return self.layers(x)

model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(300):
    x = torch.empty(32 + 16 * (step * 7 % 5), 256, device="cuda")
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def traced(folder: Path, *args: str) -> Path:
    (folder / "train.py").write_text(_PROGRAM)
    python(*RUN, "-q", "-o", "train.gmt", "train.py", *args, cwd=folder)
    return folder / "train.gmt"


def growth(folder: Path, *args: str):
    return python("-m", "gpumemtrace", "growth", *args, "train.gmt", cwd=folder, check=False)


def test_a_leak_of_1_mib_a_step_in_forward(tmp_path):
    traced(tmp_path, "leak")
    found = growth(tmp_path, "--json")
    assert found.returncode == 10, found.stderr
    (device,) = json.loads(found.stdout)["devices"]
    assert device["verdict"] == "growing"
    assert device["bytes_per_step"] == pytest.approx(MIB, rel=0.01)
    assert device["first_step"] == 0
    assert device["steps"] == 300
    (owner,) = device["owners"]
    assert (owner["phase"], owner["size_bytes"], owner["blocks_per_step"]) == ("forward", MIB, 1)
    # Nothing but the leak grows, so the steps until the device is full follow from its headroom.
    assert device["steps_until_full"] == device["headroom_bytes"] // MIB
    assert device["headroom_bytes"] < device["capacity_bytes"] - 300 * MIB


def test_no_alarm_without_it(tmp_path):
    traced(tmp_path)
    found = growth(tmp_path, "-q")
    assert found.returncode == 0, found.stdout
    assert found.stdout.startswith("cuda:0 stable")
