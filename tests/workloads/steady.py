"""Trains until a file appears (``until PATH``) or for a number of iterations (``count N``), and says how many it were.

What it computes depends on their number only: a run that was stopped by a file can be repeated exactly.
"""

import sys
from pathlib import Path

from common import batches, finish, loss_of, mlp, start, weights
from torch import optim

out, (manner, value) = start(), sys.argv[2:4]
model, data = mlp(), batches(5)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
done = 0
while done < int(value) if manner == "count" else not Path(value).exists():
    optimizer.zero_grad()
    loss_of(model, data[done % len(data)]).backward()
    optimizer.step()
    done += 1
finish(out, count=done, weights=weights(model))
