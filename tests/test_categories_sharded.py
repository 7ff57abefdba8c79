"""GIVEN FSDP2 over two GPUs, THEN each rank's memory splits into what its shards take (C91)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from launch import RUN, python

import gpumemtrace
from gpumemtrace.schema import Kind

pytestmark = pytest.mark.simgpu

# Writes down, right after the third optimizer step, how many bytes this rank's own shards take.
PROGRAM = """
import json, os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
import gpumemtrace

def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
block = lambda: nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))
model = nn.Sequential(*(block() for _ in range(3))).cuda()
for inner in model:
    fully_shard(inner)
fully_shard(model)
kind = sys.argv[1]
optimizer = {
    "adam": lambda: torch.optim.Adam(model.parameters()),
    "sgd": lambda: torch.optim.SGD(model.parameters(), lr=0.1),
}[kind]()
for step in range(5):
    model(torch.randn(64, 512, device="cuda")).sum().backward()
    optimizer.step()
    if step == 2:
        gpumemtrace.mark("truth")
        shards = sum(local(p).untyped_storage().nbytes() for p in model.parameters())
        with open(f"truth.{rank}.json", "w") as file:
            json.dump(shards, file)
    optimizer.zero_grad()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("optimizer", "states"), [("adam", 2), ("sgd", 0)])
def test_each_rank_is_told_as_what_its_shards_take(
    tmp_path: Path, optimizer: str, states: int
) -> None:
    (tmp_path / "sharded.py").write_text(PROGRAM)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*RUN, "-q", *launcher, "sharded.py", optimizer]
    python(*command, cwd=tmp_path, devices=2, timeout=300)
    traces = [gpumemtrace.open(path) for path in sorted(tmp_path.glob("*.gmt"))]
    by_rank = {trace.run_record["rank"]: trace for trace in traces}
    assert sorted(by_rank) == [0, 1]
    for rank, trace in by_rank.items():
        parameters = json.loads((tmp_path / f"truth.{rank}.json").read_text())
        whole = 3 * 4 * (512 * 2048 + 2048 + 2048 * 512 + 512)
        assert parameters == whole // 2  # the other half is the other rank's
        (event,) = trace.records(Kind.MARK)["event"].tolist()
        lifetimes = trace.lifetimes()
        is_alive = (lifetimes.birth_index < event) & (
            (lifetimes.death_index < 0) | (lifetimes.death_index >= event)
        )
        told = {
            name: int(lifetimes.size_bytes[is_alive & (lifetimes.category == name)].sum())
            for name in ("parameter", "gradient", "optimizer_state", "activation")
        }
        rounding = 512 * int(np.count_nonzero(is_alive))
        assert told["parameter"] == pytest.approx(parameters, abs=rounding)
        assert told["gradient"] == pytest.approx(parameters, abs=rounding)
        assert told["optimizer_state"] == pytest.approx(states * parameters, abs=rounding)
        assert told["activation"] == 0  # backward is over
        # In a step's forward the activations are there, and more than nothing.
        forward = lifetimes.category == "activation"
        assert lifetimes.size_bytes[forward & (lifetimes.birth_step == 2)].sum() >= 64 * 512 * 4
