"""FSDP2, FSDP and DDP over all ranks: what shards or replicates a module owns nothing of it."""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from owned import EXPECTED, Net, inputs, note
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel


def fsdp2(net):
    for part in (*net.parts, net.head):
        fully_shard(part)
    return fully_shard(net)


def fsdp(net):
    for i, part in enumerate(net.parts):
        net.parts[i] = FullyShardedDataParallel(part, use_orig_params=True)
    return FullyShardedDataParallel(net, use_orig_params=True)


rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
nets = []  # all of them live, so that the second and third are Net#2 and Net#3
for name, wrap in (("Net", fsdp2), ("Net#2", fsdp), ("Net#3", DistributedDataParallel)):
    net = wrap(Net(f"{name}.", name).cuda())
    nets.append(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        net(inputs()).sum().backward()
        note(None)
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
Path(sys.argv[1], f"owned_sharded.{rank}.json").write_text(json.dumps(EXPECTED))
