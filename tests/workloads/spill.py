"""Runs out of memory at its first starts: with `full` because it asks for more than there is, else of its own accord.

Nothing of it is to be read in its log: how it ends is told by the runtime alone.
"""

import sys
from pathlib import Path

import torch
from common import batches, finish, loss_of, mlp, start, weights
from torch import optim

out = start()
mode, starts = sys.argv[2], Path(sys.argv[3])
starts.write_text((starts.read_text() if starts.exists() else "") + "x")
model, data = mlp(), batches(5)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(20):
    optimizer.zero_grad()
    loss_of(model, data[step % len(data)]).backward()
    optimizer.step()
    if step == 10 and len(starts.read_text()) == 1:
        sys.excepthook = lambda *about: None
        if mode == "full":
            torch.zeros(1 << 30)
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
finish(out, weights=weights(model))
