"""What wraps a module doesn't own anything, and changes no path."""

import os

import torch
from owned import Net, finish, inputs, note
from torch.nn.parallel import DistributedDataParallel

os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0")
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
net = Net().cuda()
for wrapped in (
    DistributedDataParallel(net),
    torch.compile(net, backend="eager"),
    DistributedDataParallel(torch.compile(net, backend="eager")),
):
    for _ in range(2):
        wrapped(inputs()).sum().backward()
        note(None)
torch.distributed.destroy_process_group()
finish()
