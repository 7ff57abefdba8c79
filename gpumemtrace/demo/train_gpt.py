"""Train a small GPT on random tokens: an ordinary PyTorch script with no line about tracing."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, TensorDataset

__all__ = ["GPT", "main"]

VOCABULARY, WIDTH, HEADS, LAYERS, CONTEXT, BATCH, STEPS = 8192, 384, 6, 6, 256, 16, 20


class Block(nn.Module):
    """Causal self-attention and a feed-forward network, each with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x``: float (batch, time, width); the same shape comes back."""
        batch, time, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, time, 3, HEADS, width // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, time, width))
        return x + self.feed(self.norm2(x))


class GPT(nn.Module):
    """Token and position embeddings, the blocks, and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """``tokens``: int64 (batch, time); logits (batch, time, vocabulary) come back."""
        return self.head(self.norm(self.blocks(self.token(tokens) + self.position)))


def main() -> None:
    """Twenty steps of AdamW, with a short evaluation after every tenth."""
    torch.manual_seed(0)
    corpus = TensorDataset(torch.randint(0, VOCABULARY, (BATCH * STEPS, CONTEXT + 1)))
    model = GPT().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def loss_of(batch: torch.Tensor) -> torch.Tensor:
        tokens = batch.cuda(non_blocking=True)
        logits = model(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    for step, (batch,) in enumerate(DataLoader(corpus, batch_size=BATCH)):
        optimizer.zero_grad()
        loss_of(batch).backward()
        optimizer.step()
        if step % 10 == 9:
            model.eval()
            with torch.no_grad():
                loss_of(batch)
            model.train()


if __name__ == "__main__":
    main()
