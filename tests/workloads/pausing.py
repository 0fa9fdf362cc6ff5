"""Trains, says so, waits until somebody writes to a pipe (second argument; ``-``: does not wait), and trains on."""

import sys
from pathlib import Path

from common import batches, finish, loss_of, mlp, start, weights
from torch import optim

out, pipe = start(), sys.argv[2]
model, data = mlp(), batches(5)
optimizer = optim.Adam(model.parameters(), lr=1e-3)


def train() -> None:
    for step in range(20):
        optimizer.zero_grad()
        loss_of(model, data[step % len(data)]).backward()
        optimizer.step()


train()
print("idle", flush=True)
if pipe != "-":
    Path(pipe).read_text()
train()
finish(out, weights=weights(model))
