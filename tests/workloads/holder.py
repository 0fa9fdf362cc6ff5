"""Trains without a break until a file appears (second argument)."""

import sys
from pathlib import Path

from common import batches, finish, loss_of, mlp, start
from torch import optim

out, release = start(), Path(sys.argv[2])
model, data = mlp(), batches(5)
optimizer = optim.SGD(model.parameters(), lr=0.05)
losses = []
while not release.exists():
    optimizer.zero_grad()
    loss = loss_of(model, data[len(losses) % len(data)])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
finish(out, losses=losses[:100])
