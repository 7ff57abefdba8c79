"""The training runs that parity, overhead and simulated-against-real are measured on.

Models are made from configs; nothing is downloaded. Inputs are drawn on the CPU from a seeded
generator, so shapes never depend on values that a simulated GPU can't compute.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Workload:
    """One run: a model, its optimizer, and a source of CPU batches."""

    model: Callable[[], torch.nn.Module]
    batches: Callable[[], Iterator[Batch]]
    optimizer: str = "adamw"
    loss: Callable[[torch.nn.Module, Batch], torch.Tensor] = lambda m, b: m(**b).loss
    accumulate: int = 1
    clip: float | None = None
    evaluate_every: int = 0
    autocast: torch.dtype | None = None
    checkpointing: bool = False


def tokens(vocab: int, batch: int, lengths: tuple[int, ...], masked: bool = False) -> Callable:
    """Batches of random tokens; one length, or a seeded choice among several."""

    def generate() -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(1)
        pick = random.Random(1)
        while True:
            ids = torch.randint(0, vocab, (batch, pick.choice(lengths)), generator=generator)
            made = {"input_ids": ids, "labels": ids.clone()}
            if masked:
                made["attention_mask"] = torch.ones_like(ids)
            yield made

    return generate


def images(batch: int, side: int, classes: int) -> Callable:
    def generate() -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(1)
        while True:
            yield {
                "x": torch.randn(batch, 3, side, side, generator=generator),
                "y": torch.randint(0, classes, (batch,), generator=generator),
            }

    return generate


def gpt2(attention: str = "sdpa") -> torch.nn.Module:
    """GPT-2 124M, dropout off: a loss can then be compared to the bit."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(attn_implementation=attention, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    return GPT2LMHeadModel(config)


def bert() -> torch.nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0))


def qwen() -> torch.nn.Module:
    """Qwen2.5-1.5B by its published sizes."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=151936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28,
        num_attention_heads=12, num_key_value_heads=2, max_position_embeddings=32768,
        tie_word_embeddings=True,
    )  # fmt: skip
    return Qwen2ForCausalLM(config)


def resnet50() -> torch.nn.Module:
    from torchvision.models import resnet50 as build

    return build()


def classify(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(batch["x"]), batch["y"])


VARIABLE = (96, 128, 160, 200, 256, 320)

WORKLOADS = {
    "gpt2": Workload(gpt2, tokens(50257, 4, (256,))),
    "gpt2-eager": Workload(lambda: gpt2("eager"), tokens(50257, 4, (256,))),
    "gpt2-eager-sgd": Workload(lambda: gpt2("eager"), tokens(50257, 4, (256,)), optimizer="sgd"),
    "gpt2-variable": Workload(lambda: gpt2("eager"), tokens(50257, 4, VARIABLE)),
    "gpt2-accumulate": Workload(
        lambda: gpt2("eager"), tokens(50257, 2, (256,)), accumulate=4, clip=1.0, evaluate_every=3
    ),
    "gpt2-bf16": Workload(gpt2, tokens(50257, 4, (256,)), autocast=torch.bfloat16),
    "bert-variable": Workload(bert, tokens(30522, 8, VARIABLE, masked=True)),
    "qwen": Workload(qwen, tokens(151936, 1, (512,))),
    "resnet50": Workload(resnet50, images(32, 224, 1000), loss=classify),
}


def make_optimizer(name: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return torch.optim.AdamW(model.parameters(), lr=1e-4)


def train(
    workload: Workload, steps: int, after_step: Callable[[int, torch.Tensor], None]
) -> torch.nn.Module:
    """Train for ``steps`` optimizer steps; ``after_step(step, loss)`` at the end of each."""
    torch.manual_seed(0)
    model = workload.model().cuda().train()
    optimizer = make_optimizer(workload.optimizer, model)
    batches = workload.batches()
    for step in range(steps):
        for _ in range(workload.accumulate):
            batch = {key: value.cuda() for key, value in next(batches).items()}
            with torch.autocast(
                "cuda", workload.autocast or torch.float32, enabled=workload.autocast is not None
            ):
                loss = workload.loss(model, batch)
            (loss / workload.accumulate).backward()
        if workload.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), workload.clip)
        optimizer.step()
        optimizer.zero_grad()
        if workload.evaluate_every and step % workload.evaluate_every == 0:
            model.eval()
            with torch.no_grad():
                workload.loss(model, {k: v.cuda() for k, v in next(batches).items()})
            model.train()
        after_step(step, loss)
    return model
