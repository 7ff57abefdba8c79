"""What the run record learns of a training by itself, on the simulated GPU, and how it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from launch import RUN, python
from programs import PROGRAMS, record_programs
from synthetic import TraceBuilder

import gpumemtrace
from gpumemtrace.analysis.compare import compare_traces
from gpumemtrace.cli.main import main
from gpumemtrace.cli.training_wording import describe_training
from gpumemtrace.trace import Trace

PLAIN = {
    "training_inputs": {"x": {"dtype": "float32", "shapes": [[4, 16]]}},
    "eval_inputs": {},
    "class": "witness.Model",
    "wrappers": [],
    "parameters": {"float32": 544},
    "trained_parameters": 544,
}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    names = ["plain_loop", "accumulation", "grad_scaler", "checkpointing", "ddp", "variable_length"]
    return record_programs(names, tmp_path_factory.mktemp("training"))


@pytest.mark.simgpu
def test_equal_models_and_optimizers_are_one_entry_with_a_count(tmp_path: Path) -> None:
    program = """
import torch
layers = [torch.nn.Linear(16, 16, device="cuda") for _ in range(12)]
optimizers = [torch.optim.SGD([p], lr=0.1) for layer in layers for p in layer.parameters()]
head = torch.nn.Linear(16, 4, device="cuda")
optimizers.append(torch.optim.SGD(head.parameters(), lr=0.1))
for step in range(2):
    x = torch.ones(4, 16, device="cuda")
    for layer in layers:
        x = layer(x)
    head(x).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
"""
    path = tmp_path / "run.gmt"
    python(*RUN, "-o", str(path), "-c", program, cwd=tmp_path)
    record = gpumemtrace.open(path).run_record
    training = record["training"]
    linear, other = training["models"]
    assert (linear["class"], linear["count"]) == ("torch.nn.modules.linear.Linear", 12)
    assert linear["parameters"] == {"float32": 16 * 17}
    assert "count" not in other
    assert [entry.get("count", 1) for entry in training["optimizers"]] == [12, 12, 1]
    assert describe_training(record)[:2] == [
        "12 x Linear, 272 parameters each in float32 and 1 more",
        "12 x SGD (lr 0.1) and 13 more",
    ]


@pytest.mark.simgpu
def test_a_part_that_runs_without_its_model_is_no_model_of_its_own(tmp_path: Path) -> None:
    program = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 4)).cuda()
wrapper = nn.DataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(4, 16, device="cuda")
for step in range(2):
    model.__call__(x)  # both parts, as far as can be seen
    wrapper(x).sum().backward()
    optimizer.step()
    model.eval()(x)
"""
    path = tmp_path / "run.gmt"
    python(*RUN, "-o", str(path), "-c", program, cwd=tmp_path)
    whole, inner = gpumemtrace.open(path).run_record["training"]["models"]
    assert whole["class"] == inner["class"] == "torch.nn.modules.container.Sequential"
    assert (whole["wrappers"], inner["wrappers"]) == (["DataParallel"], [])
    assert whole["training_inputs"] and inner["eval_inputs"]


@pytest.mark.simgpu
def test_a_plain_loop(traces: dict[str, Trace]) -> None:
    training = traces["plain_loop"].run_record["training"]
    assert training["models"] == [PLAIN]
    (optimizer,) = training["optimizers"]
    assert optimizer["class"] == "witness.NotedSGD"
    assert (optimizer["settings"]["lr"], optimizer["settings"]["momentum"]) == (0.1, 0.9)
    assert optimizer["state"] == {"float32": 544}  # one momentum a parameter
    assert (optimizer["groups"], optimizer["parameters"]) == (1, 544)
    rest = {key: training[key] for key in training if key not in ("models", "optimizers")}
    assert rest == {
        "autocast": None,
        "grad_scaler": False,
        "activation_checkpointing": False,
        "backwards_per_step": 1,
    }
    assert describe_training(traces["plain_loop"].run_record) == [
        "Model, 544 parameters in float32",
        "NotedSGD (lr 0.1, momentum 0.9)",
        "x 4 x 16",
    ]


@pytest.mark.simgpu
def test_what_makes_a_loop_another_one(traces: dict[str, Trace]) -> None:
    training = {name: trace.run_record["training"] for name, trace in traces.items()}
    assert training["accumulation"]["backwards_per_step"] == 4
    scaled = training["grad_scaler"]
    assert (scaled["autocast"], scaled["grad_scaler"]) == ("float16", True)
    # Both kinds of checkpointing: each was seen in a program of its own session.
    assert training["checkpointing"]["activation_checkpointing"] is True
    assert [m["wrappers"] for m in training["ddp"]["models"]] == [["DistributedDataParallel"]]
    assert training["ddp"]["models"][0]["class"] == "witness.Model"


@pytest.mark.simgpu
def test_every_shape_dtype_and_argument(traces: dict[str, Trace]) -> None:
    training = traces["variable_length"].run_record["training"]
    (model,) = training["models"]
    assert model["class"] == "__main__.Tagger"
    assert model["parameters"] == {"float32": 160, "bfloat16": 170}
    assert model["trained_parameters"] == 170
    lengths = [[2, 5], [2, 7], [2, 9]]
    assert model["training_inputs"] == {
        "tokens": {"dtype": "int64", "shapes": lengths},
        "mask": {"dtype": "float32", "shapes": lengths},
    }
    assert model["eval_inputs"] == {"tokens": {"dtype": "int64", "shapes": [[1, 3]]}}
    (optimizer,) = training["optimizers"]
    assert optimizer["settings"]["lr"] == "Tensor"  # on the GPU perhaps: it isn't read
    assert "tokens 2 x 5…9" in describe_training(traces["variable_length"].run_record)


@pytest.mark.simgpu
def test_nothing_is_left_in_torch(tmp_path: Path) -> None:
    code = """
import torch, gpumemtrace
from torch.utils import checkpoint
owners = (
    torch.amp.autocast_mode.autocast, torch.amp.GradScaler, checkpoint.CheckpointFunction,
    checkpoint._checkpoint_hook,
)
before = [dict(vars(owner)) for owner in owners]
model = torch.nn.Sequential(torch.nn.Linear(4, 4))
modules = [dict(vars(module)) for module in model.modules()]
for name in ("a.gmt", "b.gmt"):
    with gpumemtrace.install(name):
        model.cuda()
        with torch.autocast("cuda", torch.bfloat16):
            model(torch.ones(2, 4, device="cuda")).sum().backward()
        if name == "a.gmt":
            assert torch.amp.GradScaler.scale is not before[1]["scale"]
    assert [dict(vars(owner)) for owner in owners] == before
    assert [dict(vars(module)) for module in model.modules()] == modules
"""
    python("-c", code, cwd=tmp_path)
    for name in ("a.gmt", "b.gmt"):
        training = gpumemtrace.open(tmp_path / name).run_record["training"]
        assert training["autocast"] == "bfloat16"
        assert training["optimizers"] == []
        assert training["backwards_per_step"] is None  # no step has ended
        shapes = [model["training_inputs"]["input"]["shapes"] for model in training["models"]]
        assert shapes == [[[2, 4]]]


@pytest.mark.simgpu
def test_a_killed_process_has_said_what_it_trained(tmp_path: Path) -> None:
    kill = "import os, signal, time; time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)"
    program = tmp_path / "killed.py"
    program.write_text((PROGRAMS / "plain_loop.py").read_text() + kill)
    env = {"PYTHONPATH": str(PROGRAMS)}
    python(*RUN, "-o", "killed.gmt", str(program), cwd=tmp_path, env=env, check=False)
    trace = gpumemtrace.open(tmp_path / "killed.gmt")
    assert not trace.complete
    assert trace.run_record["training"]["models"] == [PLAIN]


def training_of(**changes: Any) -> dict[str, Any]:
    return {
        "models": [PLAIN],
        "optimizers": [{"class": "torch.optim.AdamW", "settings": {"lr": 0.001}, "groups": 1}],
        "autocast": None,
        "grad_scaler": False,
        "activation_checkpointing": False,
        "backwards_per_step": 1,
        **changes,
    }


def saved(path: Path, training: Any) -> Path:
    builder = TraceBuilder(run_record={"training": training})
    builder.alloc(4096, 512)
    builder.trace(batch_records=10).save(path)
    return path


def test_compare_warns_where_the_trainings_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    larger = PLAIN | {"training_inputs": {"x": {"dtype": "float32", "shapes": [[8, 16]]}}}
    a = saved(tmp_path / "a.gmt", training_of())
    b = saved(
        tmp_path / "b.gmt",
        training_of(models=[larger], autocast="bfloat16", activation_checkpointing=True),
    )
    found = compare_traces(gpumemtrace.open(a), gpumemtrace.open(b))
    assert [(d.key, d.a, d.b) for d in found.record] == [
        ("training.models.0.training_inputs.x.shapes", [[4, 16]], [[8, 16]]),
        ("training.autocast", None, "bfloat16"),
        ("training.activation_checkpointing", False, True),
    ]
    assert main(["compare", str(a), str(b)]) == 0
    out = capsys.readouterr().out
    assert "The runs were not set up alike:" in out
    assert "training.autocast: None in A, bfloat16 in B" in out
    assert not compare_traces(gpumemtrace.open(a), gpumemtrace.open(a)).record


def test_info_and_summary_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "a.gmt", training_of(autocast="float16", grad_scaler=True))
    main(["info", str(path)])
    assert "trained   Model, 544 parameters in float32\n" in capsys.readouterr().out
    main(["summary", str(path)])
    line = (
        "Trained: Model, 544 parameters in float32; AdamW (lr 0.001); autocast float16 with "
        "GradScaler; x 4 x 16\n"
    )
    assert line in capsys.readouterr().out
    main(["info", "--json", str(path)])
    assert json.loads(capsys.readouterr().out)["run_record"]["training"]["autocast"] == "float16"


@pytest.mark.parametrize(
    "training",
    [None, 3, [], {"models": 1, "optimizers": "x"}, {"models": [None, {"parameters": [1]}]}],
)
def test_a_record_that_somebody_made_up_is_no_error(training: Any) -> None:
    assert isinstance(describe_training({"training": training}), list)
