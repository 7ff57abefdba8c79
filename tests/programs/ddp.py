import os

import torch
from torch.nn.parallel import DistributedDataParallel
from witness import Criterion, Model, NotedSGD, batch, note

os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0")
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
model, criterion = DistributedDataParallel(Model().cuda()), Criterion()
optimizer = NotedSGD(model.parameters(), lr=0.1)
for i in range(4):
    if i % 2 == 0:
        with model.no_sync():
            criterion(model(batch())).backward()
        continue
    criterion(model(batch())).backward()
    note("clip")
    optimizer.step()
    optimizer.zero_grad()
torch.distributed.destroy_process_group()
