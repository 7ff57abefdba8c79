"""Modules in eager mode, however their forward and backward are interleaved."""

import contextlib
import threading

import torch
from owned import Net, finish, inputs, note, tell
from torch import nn


class Loss(nn.Module):
    def forward(self, x):
        return tell(x, "Loss").sum()


class Raises(nn.Module):
    def forward(self, x):
        note("Raises")
        raise ValueError("on purpose")


# The one, then a second outermost module: paths begin with the outermost's name.
net = Net("Net.").cuda()
other = Net("Net#2.", "Net#2").cuda()
loss, optimizer = Loss(), torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    # Two forwards, then their backwards, one of them twice.
    first, second = loss(net(inputs())), loss(other(inputs()))
    first.backward(retain_graph=True)
    second.backward()
    first.backward()
    with contextlib.suppress(ValueError):
        Raises()(inputs())
    note(None)
    optimizer.step()
    optimizer.zero_grad()

# No gradients; a module that came later; one of which nobody knows where it belongs.
with torch.no_grad():
    net(inputs())
net.head.proj = nn.Linear(32, 32).cuda()
net(inputs())

# Gradients of gradients: the second graph is made by the backward of the first.
x = inputs()
(gradient,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
note(None)


# Other threads, at the same time; their nodes are run in yet another one.
def work(which):
    loss(which(inputs())).backward()
    note(None)


threads = [threading.Thread(target=work, args=(which,)) for which in (net, other)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
finish()
