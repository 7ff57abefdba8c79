"""A model whose parts are called one by one; a model that trains within its forward."""

import torch
from witness import Block, Criterion, Model, NotedSGD, batch, note

blocks = [Block().cuda() for _ in range(20)]
optimizer = NotedSGD([p for block in blocks for p in block.parameters()], lr=0.1)
for _ in range(2):
    x = batch()
    for block in blocks:
        x = block(x)
    note("loss")
    x.square().mean().backward()
    note("clip")
    optimizer.step()
    optimizer.zero_grad()


class SelfTraining(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model, self.criterion = Model(), Criterion()

    def forward(self, x):
        self.criterion(self.model(x)).backward()
        note("collate")
        self.optimizer.step()
        note("after_step")


trainer = SelfTraining().cuda()
trainer.optimizer = NotedSGD(trainer.parameters(), lr=0.1)
del optimizer, blocks
for _ in range(2):
    trainer(batch())
