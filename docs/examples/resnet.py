"""A small residual network on the digits (He et al., Deep Residual Learning), with a cosine learning rate."""

from __future__ import annotations

import torch
from data import arguments, batches, digits, save
from torch import nn


class Block(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def main() -> None:
    options = arguments(__doc__, iterations=50)
    torch.manual_seed(options.seed)
    images, labels = digits()
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        Block(32, 32), Block(32, 64, 2), Block(64, 64), Block(64, 128, 2), Block(128, 128),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.iterations)
    for step, rows in enumerate(batches(len(images), 384, options.iterations), start=1):
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    save(model, options.save)


if __name__ == "__main__":
    main()
