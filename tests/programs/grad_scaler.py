import torch
from witness import Criterion, Model, NotedSGD, batch, note

model, criterion = Model().cuda(), Criterion()
optimizer = NotedSGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for _ in range(3):
    x = batch()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = criterion(model(x))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    note("clip")
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
