import torch
from witness import Criterion, Model, NotedSGD, batch

model, criterion = Model().cuda(), Criterion()
teacher = Model().cuda()
optimizer = NotedSGD(model.parameters(), lr=0.1)
for _ in range(2):
    model.train()
    for _ in range(2):
        x = batch()
        with torch.no_grad():
            teacher(x)
        loss = criterion(model(x))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        for x in [torch.ones(4, 16, device="cuda")] * 3:
            criterion(model(x))
    criterion(model(x))  # without no_grad
