"""Somebody at a notebook: thinks, has a cell computed, thinks: ``cells.py MIB CELLS LEAST_S MOST_S``.  Plain PyTorch.

Prints for each cell how long it took, in seconds.  Each cell uses a part of a table of so many MiB.
"""

from __future__ import annotations

import json
import random
import sys
import time

import torch

ROWS = 1 << 16


def main(mib: int, cells: int, least_s: float, most_s: float) -> None:
    table = torch.ones(mib << 18)
    thoughts = random.Random(0)
    taken = []
    for cell in range(cells):
        time.sleep(thoughts.uniform(least_s, most_s))
        begin = time.perf_counter()
        first = (cell * ROWS) % (len(table) - ROWS)
        table[first : first + ROWS] += 1
        table[first : first + ROWS].sum().item()
        taken.append(time.perf_counter() - begin)
    print(json.dumps({"cells_s": taken}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
