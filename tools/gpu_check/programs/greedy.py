"""Takes so many GiB in pieces of a quarter and prints what came of it: ``greedy.py GIB``."""

from __future__ import annotations

import sys

import torch

QUARTER = 1 << 28
taken: list[torch.Tensor] = []
try:
    while len(taken) < 4 * int(sys.argv[1]):
        taken.append(torch.ones(QUARTER, dtype=torch.uint8, device="cuda"))
    print("enough")
except torch.cuda.OutOfMemoryError as error:
    print(type(error).__name__)
