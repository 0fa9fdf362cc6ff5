"""Needs much memory (second argument, MiB) from its second iteration on, and does nothing about it if there is none.

The third argument is a file that counts its starts.  If there is a fourth, the file of this name with the number of the
start at its end is read before the memory is asked for.
"""

import sys
from pathlib import Path

import torch
from common import batches, digest, finish, loss_of, mlp, start, weights
from torch import optim

out, mib, starts = start(), int(sys.argv[2]), Path(sys.argv[3])
starts.write_text((starts.read_text() if starts.exists() else "") + "x")
model, data = mlp(), batches(5)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(5):
    optimizer.zero_grad()
    loss_of(model, data[step]).backward()
    optimizer.step()
    if step == 1:
        for gate in sys.argv[4:]:
            print("here", flush=True)
            Path(f"{gate}{len(starts.read_text())}").read_bytes()
        much = torch.ones(mib << 18)
finish(out, weights=weights(model), much=digest(much[::4096]))
