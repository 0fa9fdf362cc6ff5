"""Train a small model that waits for its data: ``loader.py MIB ITERATIONS WAIT_MS``.  Plain PyTorch.

Each iteration first waits, as for a data loader whose workers are elsewhere (no CPU, no tensors), and then trains one
step of a small network beside MIB of parameters that are updated in every eighth.  Prints begin and end of the
iterations on the machine's monotonic clock, and a checksum of what was computed.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time

import torch
from torch import nn

EVERY = 8  # iterations from one update of the large part to the next


def main(mib: int, iterations: int, wait_ms: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    inputs, labels = torch.randn(256, 64), torch.randint(0, 10, (256,))
    large = torch.ones(max(1, mib) << 18)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    begin = time.perf_counter()
    for number in range(iterations):
        time.sleep(wait_ms / 1000)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        if number % EVERY == 0:
            with torch.no_grad():
                large.mul_(0.999).add_(loss.detach())
        loss.item()
    end = time.perf_counter()
    sums = [float(part.detach().double().sum()) for part in (large[::4096], *model.parameters())]
    checksum = hashlib.sha256(json.dumps([loss.item(), *sums]).encode()).hexdigest()
    print(json.dumps({"begin_s": begin, "end_s": end, "checksum": checksum}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
