"""A character-level GPT on Python's help topics, after the usual small decoder-only transformer."""

from __future__ import annotations

import torch
from data import arguments, save, text
from torch import nn

CONTEXT = 96
WIDTH = 160


class Layer(nn.Module):
    def __init__(self, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    def __init__(self, characters: int, layers: int = 3) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.Sequential(*(Layer() for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.token(tokens) + self.position.weight[: tokens.shape[1]]))


def main() -> None:
    options = arguments(__doc__, iterations=60)
    torch.manual_seed(options.seed)
    corpus = text()
    alphabet = {character: code for code, character in enumerate(sorted(set(corpus)))}
    tokens = torch.tensor([alphabet[character] for character in corpus])
    model = GPT(len(alphabet))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, options.iterations + 1):
        starts = torch.randint(len(tokens) - CONTEXT - 1, (24,))
        window = torch.stack([tokens[start : start + CONTEXT + 1] for start in starts])
        logits = model(window[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    save(model, options.save)


if __name__ == "__main__":
    main()
