"""GIVEN trainings of many kinds, WHEN they are traced, THEN blocks are named as torch says."""

from __future__ import annotations

import pytest
from category_truth import CLASSES, scores_of
from programs import PROGRAMS
from simgpu import run_simulated

pytestmark = pytest.mark.simgpu

SCENARIOS = [
    *("adam", "adamw_fused", "sgd", "sgd_momentum", "adafactor", "accumulation", "checkpointing"),
    *("bf16_autocast", "fp16_scaler", "made_on_the_gpu", "static_batch", "resumed", "averaged"),
    *("frozen", "two_optimizers", "gpt2", "fsdp2"),
]


@pytest.fixture(scope="module")
def recorded_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("categories")
    run_simulated(PROGRAMS / "categories.py", args=[str(folder), *SCENARIOS], timeout=400)
    return folder


@pytest.mark.parametrize("name", SCENARIOS)
def test_with_tags_every_byte_is_right(recorded_runs, name):
    for category, found in scores_of(recorded_runs, name, tags=True).items():
        assert found.right_bytes == found.true_bytes, (category, found)
        assert found.claimed_bytes == 0, (category, found)


@pytest.mark.parametrize("name", SCENARIOS)
def test_without_tags(recorded_runs, name):
    scores = scores_of(recorded_runs, name, tags=False)
    assert scores["parameter"].true_bytes > 1e6
    for category in CLASSES:
        found = scores[category]
        assert found.right_bytes == found.true_bytes, (category, found)
        # In a model that is mostly frozen, nothing tells a large buffer from a parameter.
        most = 360_000 if (name, category) == ("frozen", "parameter") else 0
        assert found.claimed_bytes <= most, (category, found)
