"""Train a small GPT on sequences of varying length: what the pictures in docs/figures.md show.

``--checkpoint``: recompute activations in backward. ``--keep-logits``: the mistake of keeping part
of each step's logits for later, and with it all of them.
"""

from __future__ import annotations

import argparse
import random

import torch
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from gpumemtrace.demo import train_gpt
from gpumemtrace.demo.train_gpt import GPT

VOCABULARY, BATCH, LONGEST = train_gpt.VOCABULARY, 16, train_gpt.CONTEXT
HISTORY: list[torch.Tensor] = []


def main() -> None:
    """Train for as many steps as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--keep-logits", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    lengths = [random.randrange(64, LONGEST + 1) for _ in range(args.steps)]
    batches = [torch.randint(0, VOCABULARY, (BATCH, length + 1)) for length in lengths]
    model = GPT().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for tokens in DataLoader(batches, batch_size=None):
        batch = tokens.cuda(non_blocking=True)
        optimizer.zero_grad()
        x = model.token(batch[:, :-1]) + model.position[: batch.shape[1] - 1]
        for block in model.blocks:
            x = checkpoint(block, x, use_reentrant=False) if args.checkpoint else block(x)
        logits = model.head(model.norm(x))
        F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).backward()
        optimizer.step()
        if args.keep_logits:
            HISTORY.append(logits[:1].detach())


if __name__ == "__main__":
    main()
