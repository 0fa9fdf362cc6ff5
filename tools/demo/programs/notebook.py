"""A notebook with three cells, and a person who thinks between them: the device is idle most of the time."""

from __future__ import annotations

import time

import torch
from torch import nn

CELLS, STEPS, THINKING_S = 3, 4, 4.0


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(CELLS):
        for _ in range(STEPS):
            loss = model(torch.randn(256, 512)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"loss {loss.item():.4f}", flush=True)
        time.sleep(THINKING_S)


if __name__ == "__main__":
    main()
