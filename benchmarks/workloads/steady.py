"""Train a CNN for a time: ``steady.py SECONDS``.  Plain PyTorch.

Prints when each iteration ended, on the machine's monotonic clock, the begin of the first one before them.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from torch import nn
from train import cnn  # type: ignore[import-not-found]


def main(seconds: float) -> None:
    torch.manual_seed(0)
    model, inputs, labels = cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    ends: list[float] = []
    while len(ends) < 2 or ends[-1] - ends[0] < seconds:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        if not ends:
            ends.append(time.monotonic())  # it has had a turn
        loss.backward()
        optimizer.step()
        loss.item()
        ends.append(time.monotonic())
    print(json.dumps({"ends": ends}))


if __name__ == "__main__":
    main(float(sys.argv[1]))
