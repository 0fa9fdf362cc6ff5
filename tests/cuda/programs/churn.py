"""Gets and gives back memory of all kinds in an order of its own, and pauses now and then.

    churn.py RESULT [--seed N] [--iterations N] [--most MIB]

``--most``: so much it has at a time, at most.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import torch  # noqa: F401 - attaches
from gpu import MIB, Gpu
from meeting import meet

import carpool
from carpool.runtime import native

UNIT = 64 << 10


class Memory:
    """Pieces of device memory, each with content."""

    def __init__(self, gpu: Gpu, choose: random.Random, most: int) -> None:
        self._gpu, self._choose, self._most = gpu, choose, most
        self.pieces: list[tuple[int, int, bool]] = []  # address, size, whether it is a segment

    def get(self) -> None:
        size = self._choose.choice([1, 3, 16, 40, 64]) * UNIT
        if size + sum(size for _, size, _ in self.pieces) > self._most:
            return
        segment = self._choose.random() < 0.7
        address = self._gpu.segment(size) if segment else self._gpu.memory(size)
        self._gpu.fill(address, size, self._choose.randrange(1 << 32))
        self.pieces.append((address, size, segment))

    def give_back(self) -> None:
        if self.pieces:
            address, _, segment = self.pieces.pop(self._choose.randrange(len(self.pieces)))
            if segment:
                self._gpu.free_segment(address)
            else:
                self._gpu.free(address)

    def use(self) -> None:
        for address, size, _ in self.pieces:
            self._gpu.mix(address, size, self._choose.randrange(1 << 32))

    def digest(self) -> str:
        return self._gpu.digest([(address, size) for address, size, _ in self.pieces])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("result", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--most", type=int, default=12)
    given = parser.parse_args()
    choose, digests = random.Random(given.seed), []
    memory = Memory(Gpu(), choose, given.most * MIB)
    for _ in range(4):
        memory.get()
    meet()
    for number in range(given.iterations):
        with carpool.iteration():
            for _ in range(choose.randrange(4)):
                memory.get()
            memory.use()
            for _ in range(choose.randrange(4)):
                memory.give_back()
        if choose.random() < 0.2:
            digests.append(memory.digest())
        if choose.random() < 0.1:
            time.sleep(0.02)
        if number == 2:
            print("under way", flush=True)
    digests.append(memory.digest())
    ours = native.preloaded()
    given.result.write_text(json.dumps({"digest": digests, "counters": ours.counters() if ours else {}}))


main()
