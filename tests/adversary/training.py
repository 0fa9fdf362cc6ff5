"""A neighbour's training: ``training.py STEPS``.  Says what came of it, and the longest time between two steps.

And when, by the monotonic clock, pauses of more than a second began, and how long they were.
"""

import hashlib
import json
import sys
import time

import torch
from torch import nn, optim

torch.manual_seed(7)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = optim.Adam(model.parameters(), lr=0.01)
data, wanted = torch.randn(64, 256), torch.randint(0, 10, (64,))
longest, before, pauses = 0.0, None, []
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(data), wanted).backward()
    optimizer.step()
    now = time.monotonic()
    pause = now - (before or now)
    longest = max(longest, pause)
    if pause > 1:
        pauses.append((before, pause))
    before = now
weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
print(json.dumps({"weights": hashlib.sha256(weights).hexdigest(), "longest_s": longest, "pauses": pauses}), flush=True)
