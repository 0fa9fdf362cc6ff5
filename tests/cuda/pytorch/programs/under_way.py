"""Copies in a stream of their own, for which no iteration waits before it ends: ``under_way.py RESULT SEED STEPS``."""

from __future__ import annotations

import sys

import torch
from common import DEVICE, again, finish, meet
from torch import Tensor

WORDS = 4 << 18  # of 4 MiB
PIECES = 6


def copies(source: Tensor, stream: torch.cuda.Stream) -> list[Tensor]:
    with torch.cuda.stream(stream):
        return [source.to(DEVICE, non_blocking=True) for _ in range(PIECES)]


def main(seed: int, steps: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    sources = [torch.randint(0, 1 << 31, (WORDS,), dtype=torch.int32, generator=generator).pin_memory() for _ in "ab"]
    stream, wrong = torch.cuda.Stream(), 0
    layer = torch.nn.Linear(64, 64, device=DEVICE)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for number in range(steps):
        again()
        source = sources[number % 2]
        layer(torch.ones(4, 64, device=DEVICE)).sum().backward()
        found = copies(source, stream)
        optimizer.step()  # a turn may end here, with the copies under way
        optimizer.zero_grad()
        stream.synchronize()
        wrong += sum(not torch.equal(each.cpu(), source) for each in found)
    finish(wrong=wrong, checked=True)


if __name__ == "__main__":
    meet()
    main(*map(int, sys.argv[2:]))
