"""One process on all of its devices, stage by stage, with memory of PyTorch's allocator and of the driver's on each.

    pipeline.py RESULT [--stages N] [--seed N] [--iterations N] [--meet N] [--collective]

``--meet``: it waits for the test after so many iterations.
``--collective``: it makes a communicator of NCCL for its stages.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
from pathlib import Path

import torch  # noqa: F401 - attaches
from gpu import MIB, Gpu
from meeting import meet

import carpool
from carpool.runtime import native

SIZE = 4 * MIB


class Stage:
    def __init__(self, device: int, seed: int) -> None:
        self._gpu = Gpu(device)
        self._weights, self._library = self._gpu.segment(SIZE), self._gpu.memory(SIZE)
        self._gpu.fill(self._weights, SIZE, seed)
        self._gpu.fill(self._library, SIZE, seed + 1)

    def step(self, seed: int) -> int:
        self._gpu.enter()
        self._gpu.mix(self._weights, SIZE, seed)
        self._gpu.add(self._library, self._weights, SIZE)
        return self._gpu.word(self._library)

    def digest(self) -> str:
        self._gpu.enter()
        return self._gpu.digest([(self._weights, SIZE), (self._library, SIZE)])

    def free(self) -> int:
        self._gpu.enter()
        return self._gpu.free_bytes()


def communicate(ranks: int) -> None:
    """As far as it begins."""
    library = ctypes.CDLL(os.environ["STAND_IN_NCCL"])
    devices = (ctypes.c_int * ranks)(*range(ranks))
    library.ncclCommInitAll((ctypes.c_void_p * ranks)(), ranks, devices)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("result", type=Path)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--meet", type=int, default=-1)
    parser.add_argument("--collective", action="store_true")
    given = parser.parse_args()
    devices = Gpu(0).devices()
    if given.collective:
        communicate(given.stages)
    stages = [Stage(number % len(devices), given.seed + number) for number in range(given.stages)]
    losses = []
    for number in range(given.iterations):
        if number == given.meet:
            print("under way", flush=True)
            meet()
        with carpool.iteration():
            losses += [stage.step(given.seed + number) for stage in stages]
    ours = native.preloaded()
    found = {"digest": [[stage.digest() for stage in stages], losses], "free": [stage.free() for stage in stages]}
    found |= {"devices": devices, "counters": ours.counters() if ours else {}}
    given.result.write_text(json.dumps(found))


main()
