"""Memory that grows piece by piece, all of whose contents are checked: ``growing.py RESULT MIB [POINT]``.

At POINT MiB it waits for the others.
"""

from __future__ import annotations

import sys

import torch
from common import DEVICE, finish, meet
from torch import Tensor

PIECE = 4  # MiB
WORDS = PIECE << 18


def piece(number: int) -> Tensor:
    return torch.arange(number, number + WORDS, dtype=torch.int32)


def main(size: int, point: int) -> None:
    layer = torch.nn.Linear(64, 64, device=DEVICE)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    pieces: list[Tensor] = []
    for number in range(size // PIECE):
        if number == point // PIECE:
            print("under way", flush=True)
            meet()
        layer(torch.ones(4, 64, device=DEVICE)).sum().backward()
        optimizer.step()
        pieces.append(piece(number).to(DEVICE))
    wrong = sum(not torch.equal(each.cpu(), piece(number)) for number, each in enumerate(pieces))
    finish(wrong=wrong, checked=True)


if __name__ == "__main__":
    main(int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
