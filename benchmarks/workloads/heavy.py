"""Train something that needs a lot of memory: ``heavy.py MIB PHASES HASHES STEPS [--go FILE]``.  Plain PyTorch.

A phase is so many hashes (work of the CPU, without tensors) and then so many training steps, each of which goes over
all of the memory once.  With ``--go`` work begins when the file appears.  Prints begin and end of the work on the
machine's monotonic clock, how long the hashes and the steps took in all, and a checksum of what was computed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path

import torch
from torch import nn

PART_MIB = 8
BLOCK = bytes(1 << 20)


class Work:
    """A small model with a big companion that is updated in every step."""

    def __init__(self, mib: int) -> None:
        torch.manual_seed(0)
        self.parts = [torch.ones(PART_MIB << 18) for _ in range(mib // PART_MIB)]
        self.model = nn.Linear(64, 64)
        self.data = torch.randn(256, 64)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.digest = b""

    def hashes(self, count: int) -> None:
        for _ in range(count):
            self.digest = hashlib.sha256(self.digest + BLOCK).digest()

    def step(self) -> None:
        self.optimizer.zero_grad()
        loss = self.model(self.data).square().mean()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            for part in self.parts:
                part.mul_(0.999).add_(loss.detach())

    def checksum(self) -> str:
        numbers = torch.stack([part[::65536].double().sum() for part in self.parts]).tolist() if self.parts else []
        return hashlib.sha256(json.dumps([numbers, self.digest.hex()]).encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("mib", "phases", "hashes", "steps"):
        parser.add_argument(name, type=int)
    parser.add_argument("--go", type=Path)
    options = parser.parse_args()
    work = Work(options.mib)
    work.step()  # optimizer's imports, first touches
    while options.go is not None and not options.go.exists():
        time.sleep(0.005)
    begin = time.perf_counter()
    hashing = 0.0
    for _ in range(options.phases):
        before = time.perf_counter()
        work.hashes(options.hashes)
        hashing += time.perf_counter() - before
        for _ in range(options.steps):
            work.step()
    end = time.perf_counter()
    result = {"begin_s": begin, "end_s": end, "hashing_s": hashing, "stepping_s": end - begin - hashing}
    print(json.dumps(result | {"checksum": work.checksum()}))


if __name__ == "__main__":
    main()
