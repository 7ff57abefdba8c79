import torch
from torch.utils.data import DataLoader
from witness import Criterion, Model, NotedSGD, note

note("init")
model, criterion = Model().cuda(), Criterion()
optimizer = NotedSGD(model.parameters(), lr=0.1)
loader = DataLoader([torch.ones(16)] * 24, batch_size=8, num_workers=2)
for _ in range(2):
    for x in loader:
        note("batch")
        loss = criterion(model(x.cuda(non_blocking=True).requires_grad_()))
        loss.backward()
        note("clip")
        optimizer.step()
        optimizer.zero_grad()
