"""Trains on fixed data, and says with calls that a tracer sees where its 50 and 100 iterations begin and end."""

from pathlib import Path

from common import batches, finish, loss_of, mlp, start, weights
from torch import optim

try:
    from carpool.runtime.native import preloaded
except ImportError:  # not a job

    def preloaded() -> None:
        return None


out = start()
model, data = mlp(), batches(5)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
library, counters = preloaded(), []
for step in range(171):
    if step in (20, 70, 170):
        Path(f"/marker-{step}").exists()
        counters.append(library.counters() if library else {})
    optimizer.zero_grad()
    loss_of(model, data[step % len(data)]).backward()
    optimizer.step()
finish(out, weights=weights(model), counters=counters)
