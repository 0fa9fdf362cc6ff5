"""Trains until a signal comes; cleans up with its tensors, and leaves with its own exit code."""

import signal
import sys

import torch
from common import batches, digest, finish, loss_of, mlp, start
from torch import optim


class Stop(Exception):
    """SIGTERM arrived."""


def stop(*_: object) -> None:
    raise Stop


signal.signal(signal.SIGTERM, stop)
out = start()
try:
    model, data, step = mlp(), batches(5), 0
    optimizer = optim.SGD(model.parameters(), lr=0.05)
    while True:
        optimizer.zero_grad()
        loss_of(model, data[step % len(data)]).backward()
        optimizer.step()
        step += 1
except (Stop, KeyboardInterrupt) as reason:
    finish(out, reason=type(reason).__name__, last=digest(torch.full((64, 64), 3.0)))
    sys.exit(7)
