import functools

from torch.utils.checkpoint import checkpoint
from witness import Criterion, Model, NotedSGD, batch

for reentrant in (False, True):
    model = Model(functools.partial(checkpoint, use_reentrant=reentrant)).cuda()
    criterion = Criterion()
    optimizer = NotedSGD(model.parameters(), lr=0.1)
    for _ in range(2):
        criterion(model(batch())).backward()
        optimizer.step()
        optimizer.zero_grad()
    del optimizer
