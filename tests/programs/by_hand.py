"""Phases and steps of the script's own, around and inside the automatic ones."""

import torch
from witness import Criterion, Model, NotedSGD, batch, note

import gpumemtrace
from gpumemtrace import phase

with phase("setup"):
    note("init")
    model, criterion = Model().cuda(), Criterion()
optimizer = NotedSGD(model.parameters(), lr=0.1)
teacher = Model().cuda()
for _ in range(3):
    with phase("train"):
        x = batch()
        y = model(x)
        with phase("distill"):
            note("collate")
            with torch.no_grad():
                teacher(x)
        loss = criterion(y)
        loss.backward()
        with phase("clip"):
            note("clip")
        optimizer.step()
        optimizer.step()
    note("after_step")
    gpumemtrace.step()
