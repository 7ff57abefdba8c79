"""One thread prefetches with a DataLoader, the main thread trains, autograd has its own."""

import queue
import threading

import torch
from torch.utils.data import DataLoader
from witness import Criterion, Model, NotedSGD, note

ready = queue.Queue(maxsize=1)


def prefetch():
    for x in DataLoader([torch.ones(16)] * 12, batch_size=4):
        note("collate")
        ready.put(x.cuda())
    ready.put(None)


model, criterion = Model().cuda(), Criterion()
optimizer = NotedSGD(model.parameters(), lr=0.1)
thread = threading.Thread(target=prefetch)
thread.start()
while (x := ready.get()) is not None:
    criterion(model(x.requires_grad_())).backward()
    optimizer.step()
    optimizer.zero_grad()
thread.join()
