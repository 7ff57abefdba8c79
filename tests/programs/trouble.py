"""Calls that raise: in a forward, in a step, by Ctrl-C; the training goes on each time."""

import pickle

import torch
from witness import Criterion, Model, NotedSGD, batch, note


class Fragile(Model):
    error = None

    def forward(self, x):
        x = super().forward(x)
        if self.error is not None:
            raise self.error
        return x


class FragileSGD(NotedSGD):
    error = None

    def step(self, closure=None):
        super().step(closure)
        if self.error is not None:
            raise self.error


model, criterion = Fragile().cuda(), Criterion()
optimizer = FragileSGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader([torch.ones(16)] * 6, batch_size=2)


def iterate(x):
    note("batch")
    try:
        loss = criterion(model(x.requires_grad_()))
        loss.backward()
        note("clip")
        optimizer.step()
    except (MemoryError, KeyboardInterrupt):
        pass
    note("after_step")
    optimizer.zero_grad()


for Fragile.error in (None, MemoryError(), KeyboardInterrupt(), None):
    for x in loader:
        iterate(x.cuda())
assert not model._forward_hooks
assert b"gpumemtrace" not in pickle.dumps(model)
for FragileSGD.error in (MemoryError(), None):
    for _ in range(2):
        iterate(batch())
