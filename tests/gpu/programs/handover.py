"""Very short iterations, each awaited; prints when each had ended, in nanoseconds: ``handover.py ITERATIONS``."""

from __future__ import annotations

import json
import sys
import time

import torch

import carpool

counter = torch.zeros(1, device="cuda")
ends = []
for _ in range(int(sys.argv[1])):
    with carpool.iteration():
        counter.add_(1)
        torch.cuda.synchronize()
        ends.append(time.monotonic_ns())
print(json.dumps(ends))
