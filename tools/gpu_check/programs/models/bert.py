"""BERT-base (Devlin et al. 2018): 12 layers of width 768, 12 heads, 110 M parameters; masked words, length 128."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .training import Training, adam
from .transformer import Block

WORDS, POSITIONS, WIDTH, LAYERS, HEADS, DROPOUT = 30_522, 512, 768, 12, 12, 0.1
LENGTH, MASK, MASKED = 128, 103, 0.15
IGNORED = -100  # by the loss


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.word, self.position = nn.Embedding(WORDS, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.segment = nn.Embedding(2, WIDTH)
        self.begin = nn.Sequential(nn.LayerNorm(WIDTH), nn.Dropout(DROPOUT))
        self.layers = nn.Sequential(
            *(Block(WIDTH, HEADS, DROPOUT, causal=False, norm_first=False) for _ in range(LAYERS))
        )
        self.transform = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, WORDS)
        nn.init.normal_(self.word.weight, std=0.02)
        self.head.weight = self.word.weight

    def forward(self, words: Tensor) -> Tensor:
        """(batch, length) -> (batch, length, WORDS)."""
        x = self.word(words) + self.position.weight[: words.shape[1]] + self.segment.weight[0]
        return self.head(self.transform(self.layers(self.begin(x))))


def bert(device: torch.device, batch: int) -> Training:
    net = Bert().to(device)
    words = torch.randint(WORDS, (batch, LENGTH), device=device)
    masked = torch.rand(batch, LENGTH, device=device) < MASKED
    masked[:, 0] = True
    wanted = words.masked_fill(~masked, IGNORED).flatten()
    seen = words.masked_fill(masked, MASK)
    return Training(net, lambda: nn.functional.cross_entropy(net(seen).flatten(0, 1), wanted), adam(net, device))
