"""Trains until a file appears (``until PATH``) or for a number of iterations (``count N``), and says how many it were.

``busily PATH``: as ``until``, and without a pause between iterations.  A number after these: rows of a batch.

What it computes depends on their number only: a run that was stopped by a file can be repeated exactly.
"""

import sys
import time
from pathlib import Path

from common import batches, finish, loss_of, mlp, start, weights
from torch import optim

PAUSE_S = 0.005


def goes_on(done: int, manner: str, value: str) -> bool:
    """Leaves the processor to others for a moment: tests start their next jobs meanwhile, and repeat all iterations."""
    if manner == "count":
        return done < int(value)
    if manner == "until":
        time.sleep(PAUSE_S)
    return not Path(value).exists()


out, (manner, value, *rows) = start(), sys.argv[2:]
model, data = mlp(), batches(5, *map(int, rows))
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
done = 0
while goes_on(done, manner, value):
    optimizer.zero_grad()
    loss_of(model, data[done % len(data)]).backward()
    optimizer.step()
    done += 1
finish(out, count=done, weights=weights(model))
