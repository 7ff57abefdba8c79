"""FSDP2 on every GPU of the host: losses as bits, for comparing traced with untraced.

torchrun --nproc-per-node 2 benchmarks/fsdp2.py --losses untraced
GPUMEMTRACE=1 torchrun --nproc-per-node 2 benchmarks/fsdp2.py --losses traced
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from workloads import gpt2, tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--losses", required=True, help="prefix; the rank and .json are added")
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()

    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    model = gpt2().cuda().train()
    for block in model.transformer.h:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batches = tokens(50257, 4, (256,))()
    bits: list[int] = []
    for _ in range(args.steps):
        batch = {key: value.cuda() for key, value in next(batches).items()}
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        bits.append(loss.detach().cpu().view(torch.int32).item())
    stats = torch.cuda.memory_stats()
    keys = ("requested", "allocated", "active", "reserved")
    peaks = {key: stats[f"{key}_bytes.all.peak"] for key in keys}
    Path(f"{args.losses}.{rank}.json").write_text(json.dumps({"loss_bits": bits, "peaks": peaks}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
