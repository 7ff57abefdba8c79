import torch
from witness import Criterion, Model, NotedSGD, batch, note

note("init")
model, criterion = torch.compile(Model().cuda(), backend="eager"), Criterion()
optimizer = NotedSGD(model.parameters(), lr=0.1)
for _ in range(3):
    criterion(model(batch())).backward()
    note("clip")
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    model(batch())
