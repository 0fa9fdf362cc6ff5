"""A convolutional network with SGD and momentum on the digits, with an evaluation after every epoch."""

from __future__ import annotations

import torch
from data import arguments, batches, digits, save
from torch import nn


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(128 * 4, 10),
    )  # fmt: skip


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    correct = (model(images).argmax(1) == labels).float().mean().item()
    model.train()
    return correct


def main() -> None:
    options = arguments(__doc__, iterations=90)
    torch.manual_seed(options.seed)
    images, labels = digits()
    train, held_out = slice(0, 1536), slice(1536, None)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step, rows in enumerate(batches(1536, 256, options.iterations), start=1):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[train][rows]), labels[train][rows])
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            share = accuracy(model, images[held_out], labels[held_out])
            print(f"step {step} loss {loss.item():.4f} held out {share:.1%}", flush=True)
    save(model, options.save)


if __name__ == "__main__":
    main()
