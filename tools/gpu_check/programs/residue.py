"""Memory that outlives iterations keeps its content: ``residue.py SEED ITERATIONS``.  Prints how much it has compared.

Each iteration makes blocks of 1 KiB to 1 MiB, fills them with numbers that no other job has, and looks at those of the
iteration before.
"""

from __future__ import annotations

import sys

import torch
from meeting import meet

import carpool

SEED, ITERATIONS, BLOCKS = int(sys.argv[1]), int(sys.argv[2]), 33


def made(number: int) -> list[torch.Tensor]:
    first = (SEED * ITERATIONS + number) * BLOCKS
    sizes = [1 << (8 + place % 11) for place in range(BLOCKS)]  # of four bytes
    return [torch.full((size,), first + place, dtype=torch.int32, device="cuda") for place, size in enumerate(sizes)]


def wrong(blocks: list[torch.Tensor], number: int) -> int:
    """How many are not what `made` has made."""
    first = (SEED * ITERATIONS + number) * BLOCKS
    differences = [(block != first + place).any() for place, block in enumerate(blocks)]
    return int(torch.stack(differences).sum())


compared, blocks = 0, made(0)
for number in range(1, ITERATIONS):
    with carpool.iteration():
        if different := wrong(blocks, number - 1):
            sys.exit(f"{different} of {BLOCKS} blocks of iteration {number - 1} have another content")
        compared += len(blocks)
        blocks = made(number)
    if number == 1:
        meet()
print(compared)
