"""Small trainings of many kinds; in one step of each it is written down where what lies.

Each scenario records a trace of its own in the folder given; ``truth.json`` there maps scenario ->
category -> [address, bytes], as of the mark "truth" in the trace.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import gpumemtrace

Truth = dict[str, list[tuple[int, int]]]
SCENARIOS: dict[str, Callable[[], Truth]] = {}
STEPS, TRUTH_STEP = 6, 4


def scenario(function: Callable[[], Truth]) -> Callable[[], Truth]:
    SCENARIOS[function.__name__] = function
    return function


class Perceptron(nn.Module):
    def __init__(self, width: int = 640, is_checkpointed: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.GELU(),
                          nn.Linear(3 * width, width))
            for _ in range(4)
        )  # fmt: skip
        self.head = nn.Linear(width, 1000)
        self.is_checkpointed = is_checkpointed
        self.register_buffer("mask", torch.ones(300, 300))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            if self.is_checkpointed:
                x = x + checkpoint(block, x, use_reentrant=False)
            else:
                x = x + block(x)
        return self.head(x)


class Convolutions(nn.Sequential):
    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for i, o in ((3, 64), (64, 128), (128, 128), (128, 256)):
            layers += [nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 1000))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(0, 1000, (8, 128))
    return ids.cuda(), ids.cuda()


def images() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(8, 3, 32, 32).cuda(), torch.randint(0, 1000, (8,)).cuda()


def place(tensors: Iterable[torch.Tensor]) -> list[tuple[int, int]]:
    local = [t.to_local() if isinstance(t, DTensor) else t for t in tensors]
    stores = [tensor.untyped_storage() for tensor in local if tensor.is_cuda]
    return [(store.data_ptr(), store.nbytes()) for store in stores]


def note(models: list[nn.Module], optimizers: list[Any]) -> Truth:
    gpumemtrace.mark("truth")
    parameters = [p for model in models for p in model.parameters()]
    state = [
        value
        for optimizer in optimizers
        for entry in optimizer.state.values()
        for value in entry.values()
        if isinstance(value, torch.Tensor)
    ]
    return {
        "parameter": place(parameters),
        "buffer": place(b for model in models for b in model.buffers()),
        "gradient": place(p.grad for p in parameters if p.grad is not None),
        "optimizer_state": place(state),
    }


def train(
    model: nn.Module,
    optimizer: Any,
    *,
    data: Callable[[], tuple[torch.Tensor, torch.Tensor]] = batch,
    accumulate: int = 1,
    set_to_none: bool = True,
    autocast: torch.dtype | None = None,
    scaler: Any = None,
    after: Callable[[], None] = lambda: None,
    clip: bool = False,
) -> Truth:
    truth: Truth = {}
    for step in range(STEPS):
        for _ in range(accumulate):
            x, y = data()
            with torch.autocast("cuda", autocast or torch.float16, enabled=autocast is not None):
                output = model(x)
                loss = functional.cross_entropy(output.flatten(0, -2), y.flatten())
            (scaler.scale(loss) if scaler else loss).backward()
        if clip:
            if scaler:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        after()
        if step == TRUTH_STEP:
            truth = note([model], [optimizer])
        optimizer.zero_grad(set_to_none=set_to_none)
    return truth


@scenario
def adam() -> Truth:
    model = Perceptron().cuda()
    return train(model, torch.optim.Adam(model.parameters()), clip=True)


@scenario
def adamw_fused() -> Truth:
    model = Perceptron().cuda()
    return train(model, torch.optim.AdamW(model.parameters(), fused=True))


@scenario
def sgd() -> Truth:
    model = Perceptron().cuda()
    return train(model, torch.optim.SGD(model.parameters(), lr=0.1), clip=True)


@scenario
def sgd_momentum() -> Truth:
    model = Convolutions().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return train(model, optimizer, data=images)


@scenario
def adafactor() -> Truth:
    model = Perceptron().cuda()
    return train(model, torch.optim.Adafactor(model.parameters()))


@scenario
def accumulation() -> Truth:
    model = Perceptron().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    return train(model, optimizer, accumulate=3, set_to_none=False)


@scenario
def checkpointing() -> Truth:
    model = Perceptron(is_checkpointed=True).cuda()
    return train(model, torch.optim.AdamW(model.parameters()), accumulate=2)


@scenario
def bf16_autocast() -> Truth:
    model = Perceptron().cuda()
    return train(model, torch.optim.AdamW(model.parameters()), autocast=torch.bfloat16, clip=True)


@scenario
def fp16_scaler() -> Truth:
    model = Convolutions().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    scaling = {"autocast": torch.float16, "scaler": scaler, "clip": True}
    return train(model, optimizer, data=images, **scaling)


@scenario
def made_on_the_gpu() -> Truth:
    with torch.device("cuda"):
        model = Perceptron().to(torch.bfloat16)
    return train(model, torch.optim.AdamW(model.parameters()))


@scenario
def static_batch() -> Truth:
    model = Perceptron().cuda()
    x, y = batch()
    return train(model, torch.optim.Adam(model.parameters()), data=lambda: (x, y))


@scenario
def resumed() -> Truth:
    model = Perceptron().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for p in model.parameters():
        optimizer.state[p] = {
            "step": torch.tensor(3.0),
            "exp_avg": torch.zeros_like(p),
            "exp_avg_sq": torch.zeros_like(p),
        }
    return train(model, optimizer)


@scenario
def averaged() -> Truth:
    model = Perceptron().cuda()
    average = copy.deepcopy(model)
    mine, theirs = list(model.parameters()), list(average.parameters())
    optimizer = torch.optim.AdamW(model.parameters())

    @torch.no_grad()
    def after() -> None:
        torch._foreach_lerp_(theirs, mine, 0.01)

    truth = train(model, optimizer, after=after)
    truth["parameter"] += place(theirs)
    truth["buffer"] += place(average.buffers())
    return truth


@scenario
def frozen() -> Truth:
    model = Perceptron().cuda()
    for p in model.parameters():
        p.requires_grad_(False)
    width = 640
    for block in model.blocks:
        block.append(nn.Sequential(nn.Linear(width, 8), nn.Linear(8, width)).cuda())
    trained = [p for p in model.parameters() if p.requires_grad]
    return train(model, torch.optim.AdamW(trained))


@scenario
def two_optimizers() -> Truth:
    one, other = Perceptron().cuda(), Perceptron(width=512).cuda()
    optimizers = [torch.optim.Adam(one.parameters()), torch.optim.Adam(other.parameters())]
    truth: Truth = {}
    for step in range(STEPS):
        for model, optimizer in zip((one, other), optimizers, strict=True):
            x, y = batch()
            optimizer.zero_grad()
            functional.cross_entropy(model(x).flatten(0, -2), y.flatten()).backward()
            optimizer.step()
        if step == TRUTH_STEP:
            truth = note([one, other], optimizers)
    return truth


@scenario
def gpt2() -> Truth:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=3, n_embd=384, n_head=6, vocab_size=1000, n_positions=256)
    model = GPT2LMHeadModel(config).cuda()
    wrapped = Logits(model)
    return train(wrapped, torch.optim.AdamW(model.parameters(), weight_decay=0.1), clip=True)


@scenario
def fsdp2() -> Truth:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    model = Perceptron().cuda()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    truth = train(model, torch.optim.AdamW(model.parameters()))
    dist.destroy_process_group()
    return truth


class Logits(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(ids, use_cache=False).logits
        return logits


if __name__ == "__main__":
    folder, *names = sys.argv[1:]
    truth = {}
    for name in names or SCENARIOS:
        torch._C._cuda_clearCublasWorkspaces()  # those of the scenario before
        with gpumemtrace.install(f"{folder}/{name}.gmt"):
            truth[name] = SCENARIOS[name]()
    Path(folder, "truth.json").write_text(json.dumps(truth))
