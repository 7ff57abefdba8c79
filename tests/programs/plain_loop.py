import torch
from witness import Criterion, Model, NotedSGD, batch, note

note("init")
model, criterion = Model().cuda(), Criterion()
optimizer = NotedSGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(3):
    x = batch()
    optimizer.zero_grad()
    loss = criterion(model(x))
    loss.backward()
    note("clip")
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    note("after_step")
