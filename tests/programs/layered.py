"""A small transformer of four equal blocks; prints the bytes of each module's own parameters."""

import json

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, 4, batch_first=True)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    def __init__(self, words: int = 500, width: int = 64) -> None:
        super().__init__()
        self.wte = nn.Embedding(words, width)
        self.h = nn.ModuleList(Block(width) for _ in range(4))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens)
        for block in self.h:
            x = block(x)
        return self.head(x)


net = Transformer().cuda()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(4):
    tokens = torch.zeros((32, 128), dtype=torch.long, device="cuda")
    logits = net(tokens)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)

own = {
    name: [4 * parameter.numel() for parameter in module.parameters(recurse=False)]
    for name, module in net.named_modules()
}
print(json.dumps({name: sizes for name, sizes in own.items() if sizes}))
