"""Gradients zeroed after the step, before the forward pass, or never given back (second argument)."""

import sys

from common import batches, finish, loss_of, mlp, start, weights
from torch import optim

out, manner = start(), sys.argv[2]
model, data = mlp(), batches(5)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
losses = []
for step in range(40):
    if manner == "before":
        optimizer.zero_grad()
    elif manner == "keep":
        optimizer.zero_grad(set_to_none=False)
    loss = loss_of(model, data[step % len(data)])
    loss.backward()
    optimizer.step()
    if manner == "after":
        optimizer.zero_grad()
    losses.append(loss.item())
finish(out, weights=weights(model), losses=losses)
