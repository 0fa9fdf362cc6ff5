"""A multilayer perceptron with Adam on the digits: most of its memory is weights and optimizer state."""

from __future__ import annotations

import torch
from data import arguments, batches, digits, save
from torch import nn


def main() -> None:
    options = arguments(__doc__, iterations=80)
    torch.manual_seed(options.seed)
    images, labels = digits()
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, rows in enumerate(batches(len(images), 256, options.iterations), start=1):
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    save(model, options.save)


if __name__ == "__main__":
    main()
