"""Trains until a file appears (``until PATH``) or for a number of iterations (``count N``), and says how many it were.

What it computes depends on their number only: a run that was stopped by a file can be repeated exactly.
"""

import sys
import time
from pathlib import Path

from common import batches, finish, loss_of, mlp, start, weights
from torch import optim

PAUSE_S = 0.005


def is_there(path: Path) -> bool:
    """Leaves the processor to others for a moment: tests start their next jobs meanwhile, and repeat all iterations."""
    time.sleep(PAUSE_S)
    return path.exists()


out, (manner, value) = start(), sys.argv[2:4]
model, data = mlp(), batches(5)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
done = 0
while done < int(value) if manner == "count" else not is_there(Path(value)):
    optimizer.zero_grad()
    loss_of(model, data[done % len(data)]).backward()
    optimizer.step()
    done += 1
finish(out, count=done, weights=weights(model))
