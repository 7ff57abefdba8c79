import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 16)
        self.head = nn.Linear(16, 10).bfloat16()
        self.embed.weight.requires_grad_(False)

    def forward(self, tokens, *, mask=None):
        return self.head(self.embed(tokens).bfloat16())


model = Tagger().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3), capturable=True)
for length in (5, 9, 7, 5):
    tokens = torch.zeros(2, length, dtype=torch.int64, device="cuda")
    model(tokens, mask=torch.ones(2, length, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    model({"tokens": torch.zeros(1, 3, dtype=torch.int64, device="cuda")}["tokens"])
