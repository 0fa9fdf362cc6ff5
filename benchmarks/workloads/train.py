"""Train a model for some iterations and time each: ``train.py MODEL ITERATIONS WARMUP``.  Plain PyTorch.

Prints the median time of an iteration, and begin and end of the measured ones on the machine's monotonic clock.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import torch
from torch import nn


def mlp() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A few milliseconds per iteration on one core."""
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return model, torch.randn(512, 64), torch.randint(0, 10, (512,))


def cnn() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Some tens of milliseconds."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 64, 10),
    )  # fmt: skip
    return model, torch.randn(128, 1, 16, 16), torch.randint(0, 10, (128,))


class Transformer(nn.Module):
    """A small encoder over 64 tokens of width 128."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(100, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.1, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.body(self.token(tokens)).mean(1))
        return result


def transformer() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    return Transformer(), torch.randint(0, 100, (16, 64)), torch.randint(0, 10, (16,))


MODELS = {"mlp": mlp, "cnn": cnn, "transformer": transformer}


def main(name: str, iterations: int, warmup: int) -> None:
    torch.manual_seed(0)
    model, inputs, labels = MODELS[name]()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    marks = []
    for _ in range(warmup + iterations + 1):
        marks.append(time.perf_counter())
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        loss.item()
    times = [after - before for before, after in zip(marks[warmup:-1], marks[warmup + 1 :], strict=True)]
    middle = statistics.median(times)
    print(json.dumps({"iteration_s": middle, "begin_s": marks[warmup], "end_s": marks[-1], "loss": loss.item()}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
