"""A cache that is in the way: ``cache.py RESULT FIRST SECOND`` (MiB), tensors of which only one fits on the device."""

from __future__ import annotations

import sys

import torch
from common import DEVICE, finish, meet
from torch import Tensor

WORDS = 1 << 18  # of a MiB
COUNTED = ("num_alloc_retries", "num_ooms")


def train_once() -> None:
    """What comes afterwards is ephemeral."""
    layer = torch.nn.Linear(512, 512, device=DEVICE)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(torch.ones(8, 512, device=DEVICE)).sum().backward()
    optimizer.step()


def filled(size: int) -> Tensor:
    return torch.arange(size * WORDS, dtype=torch.int32).to(DEVICE)


def main(first: int, second: int) -> None:
    train_once()
    kept = filled(1)
    filled(first)
    large = filled(second)
    right = torch.equal(large.cpu(), torch.arange(second * WORDS, dtype=torch.int32))
    statistics = torch.cuda.memory_stats()
    finish(right=right and torch.equal(kept, large[:WORDS]), **{name: statistics[name] for name in COUNTED})


if __name__ == "__main__":
    meet()
    main(*map(int, sys.argv[2:]))
