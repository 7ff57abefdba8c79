import torch
from witness import Criterion, Model, NotedSGD, batch

generator, discriminator, criterion = Model().cuda(), Model().cuda(), Criterion()
d_optimizer = NotedSGD(discriminator.parameters(), lr=0.1)
g_optimizer = NotedSGD(generator.parameters(), lr=0.1)
for _ in range(3):
    for _ in range(2):
        with torch.no_grad():
            fake = generator(batch())
        criterion(discriminator(fake.requires_grad_())).backward()
        d_optimizer.step()
        d_optimizer.zero_grad()
    criterion(discriminator(generator(batch()))).backward()
    g_optimizer.step()
    g_optimizer.zero_grad()
