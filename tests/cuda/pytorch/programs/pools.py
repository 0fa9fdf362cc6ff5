"""Tensors in memory pools of the script's own, whose contents are checked: ``pools.py RESULT SEED STEPS``."""

from __future__ import annotations

import random
import sys

import torch
from common import DEVICE, again, finish, meet
from torch import Tensor

WORDS, POOLS, MOST = 1 << 18, 2, 6  # words of a MiB; tensors of a pool


def main(seed: int, steps: int) -> None:
    chance, wrong, checked = random.Random(seed), 0, 0
    pools = [torch.cuda.MemPool() for _ in range(POOLS)]
    live: list[list[tuple[Tensor, int]]] = [[] for _ in pools]
    layer = torch.nn.Linear(256, 256, device=DEVICE)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(steps):
        again()
        for pool, tensors in zip(pools, live, strict=True):
            begin, size = chance.randrange(1 << 20), chance.randrange(1, 2 * WORDS)
            with torch.cuda.use_mem_pool(pool):
                tensors.append((torch.arange(begin, begin + size, device=DEVICE), begin))
            found, begin = tensors.pop(chance.randrange(len(tensors))) if len(tensors) > MOST else tensors[0]
            wrong += not torch.equal(found.cpu(), torch.arange(begin, begin + found.numel()))
            checked += 1
        optimizer.zero_grad()
        layer(torch.zeros(8, 256, device=DEVICE)).sum().backward()
        optimizer.step()
    finish(wrong=wrong, checked=checked >= steps)


if __name__ == "__main__":
    meet()
    main(*map(int, sys.argv[2:]))
