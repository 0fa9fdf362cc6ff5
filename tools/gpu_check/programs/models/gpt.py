"""A small GPT over characters: 6 layers of width 384, 6 heads, 10.8 M parameters; sequences of 256."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .training import Training, adam
from .transformer import Block

CHARACTERS, LENGTH, WIDTH, LAYERS, HEADS, DROPOUT = 65, 256, 384, 6, 6, 0.2


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(CHARACTERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.Sequential(
            *(Block(WIDTH, HEADS, DROPOUT, causal=True, norm_first=True) for _ in range(LAYERS))
        )
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CHARACTERS, bias=False))

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length) -> (batch, length, CHARACTERS)."""
        return self.head(self.layers(self.token(tokens) + self.position.weight[: tokens.shape[1]]))


def gpt(device: torch.device, batch: int) -> Training:
    net = Gpt().to(device)
    text = torch.randint(CHARACTERS, (batch, LENGTH + 1), device=device)
    tokens, following = text[:, :-1].contiguous(), text[:, 1:].flatten()
    return Training(net, lambda: nn.functional.cross_entropy(net(tokens).flatten(0, 1), following), adam(net, device))
