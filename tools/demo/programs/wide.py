"""A job that keeps 96 MiB: two wide layers, their gradients and their momentum."""

from __future__ import annotations

import torch
from torch import nn

WIDTH, ITERATIONS = 2048, 8


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(64, WIDTH)
    for _ in range(ITERATIONS):
        loss = model(x).square().mean()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
