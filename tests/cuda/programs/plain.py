"""A program that knows neither Carpool nor PyTorch: it works on memory of the driver's own.

plain.py RESULT [--weights MIB] [--iterations N] [--seed N] [--meet N] [--managed]

``--meet``: it waits for the test after so many iterations.  ``--managed``: with memory that the driver cannot move.
"""

from __future__ import annotations

import argparse
import ctypes
import json
from pathlib import Path

from gpu import MIB, Gpu
from meeting import meet

GLOBAL = 1  # CU_MEM_ATTACH_GLOBAL

parser = argparse.ArgumentParser()
parser.add_argument("result", type=Path)
parser.add_argument("--weights", type=int, default=8)
parser.add_argument("--iterations", type=int, default=40)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--meet", type=int, default=-1)
parser.add_argument("--managed", action="store_true")
given = parser.parse_args()

gpu = Gpu()
size = given.weights * MIB
weights, more = gpu.memory(size), 0
gpu.fill(weights, size, given.seed)
if given.managed:
    address = ctypes.c_uint64()
    gpu.call("cuMemAllocManaged", ctypes.byref(address), ctypes.c_size_t(MIB), GLOBAL)
losses = []
for number in range(given.iterations):
    if number == given.meet:
        print("under way", flush=True)
        meet()
    gpu.mix(weights, size, given.seed + number)
    losses.append(gpu.word(weights))
    if not more:  # memory that it did not have when it was first suspended
        more = gpu.memory(size)
    gpu.fill(more, size, number)
digest = gpu.digest([(weights, size), (more, size)])
given.result.write_text(json.dumps({"digest": [digest, *losses]}))
