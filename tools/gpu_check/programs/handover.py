"""Very short iterations: ``handover.py ITERATIONS [BLOCKS [STREAMS]]``.  Prints pairs of times in nanoseconds, as JSON.

A pair is when the iteration's first kernel, and when its last one, had been seen to end.  BLOCKS of memory are alive at
each iteration's end, made in that iteration; sizes are from 1 KiB to 1 MiB.  STREAMS besides have had a kernel each.
Jobs that are to meet do so after their first iteration, when PyTorch has all that it needs.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from meeting import meet

import carpool
from carpool.devices.cuda import driver

ITERATIONS = int(sys.argv[1])
BLOCKS, STREAMS = (int(sys.argv[place]) if len(sys.argv) > place else 0 for place in (2, 3))


def kernel(counter: torch.Tensor) -> int:
    counter.add_(1)
    torch.cuda.synchronize()
    return time.monotonic_ns()


counter = torch.zeros(1, device="cuda")
for _ in range(STREAMS):  # PyTorch's own come from a pool of 32
    with torch.cuda.stream(torch.cuda.ExternalStream(int(driver.call("cuStreamCreate", 1)))):
        kernel(torch.zeros(1, device="cuda"))
pairs, kept = [], []
for number in range(ITERATIONS):
    with carpool.iteration():
        begin = kernel(counter)
        kept = [torch.empty(1 << (10 + block % 11), dtype=torch.uint8, device="cuda") for block in range(BLOCKS)]
        pairs.append((begin, kernel(counter)))
    if number == 0:
        meet()
print(json.dumps(pairs))
