"""A Hugging Face Trainer, unmodified: its phases and steps, and what the run record says of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from programs import places, record_programs

from gpumemtrace.trace import Trace

pytestmark = pytest.mark.simgpu


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    for package in ("transformers", "accelerate"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    folder: Path = tmp_path_factory.mktemp("trainer")
    return record_programs(["hf_trainer"], folder)["hf_trainer"]


def test_phases_and_steps(trace: Trace) -> None:
    assert len(trace.steps) == 4
    found = places(trace)
    for step in range(4):
        assert found["forward", "forward", step] == 2  # two accumulated batches
        assert found["clip", "backward", step] == 1
        assert found["after_step", "data", step + 1] == 1
    for step in (2, 4):
        assert found["eval", "eval", step] == 2


def test_the_run_record(trace: Trace) -> None:
    training = trace.run_record["training"]
    (model,) = training["models"]
    assert model["class"].endswith(".GPT2LMHeadModel")
    assert model["parameters"] == {"float32": 6976}
    assert model["training_inputs"]["input_ids"] == {"dtype": "int64", "shapes": [[4, 8]]}
    assert model["eval_inputs"]["input_ids"] == {"dtype": "int64", "shapes": [[8, 8]]}
    (optimizer,) = training["optimizers"]
    assert optimizer["class"] == "torch.optim.adamw.AdamW"
    assert optimizer["groups"] == 2
    assert training["backwards_per_step"] == 2
