"""GIVEN ten steps of ResNet-50, WHEN they are recorded without any option, THEN the file is small.

C93: other recorders need three switches at once and write 1.8 GB for ten steps.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from launch import RUN, python

import gpumemtrace

pytestmark = pytest.mark.simgpu

# The configuration's defaults are ResNet-50.
PROGRAM = """
import torch
from transformers import ResNetConfig, ResNetForImageClassification
model = ResNetForImageClassification(ResNetConfig(num_labels=1000)).cuda()
assert sum(p.numel() for p in model.parameters()) == 25_557_032
optimizer = torch.optim.AdamW(model.parameters())
labels = torch.zeros(32, dtype=torch.long, device="cuda")
for _ in range(10):
    images = torch.randn(32, 3, 224, 224, device="cuda")
    model(pixel_values=images, labels=labels).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_ten_steps_of_resnet50_take_less_than_2_mb(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    path = tmp_path / "resnet50.gmt"
    python(*RUN, "-q", "-o", str(path), "-c", PROGRAM, cwd=tmp_path, timeout=300)
    trace = gpumemtrace.open(path)
    assert len(trace.steps) == 10
    assert len(trace) > 10 * 1000
    assert trace.dropped_events == 0
    assert path.stat().st_size <= 2_000_000
