"""A moving average of the weights that begins after some iterations."""

import copy

import torch
from common import batches, finish, loss_of, mlp, start, weights
from torch import optim

out = start()
model, data = mlp(), batches(5)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
average = None
for step in range(40):
    optimizer.zero_grad()
    loss_of(model, data[step % len(data)]).backward()
    optimizer.step()
    if step == 6:
        average = copy.deepcopy(model)
    elif average is not None:
        with torch.no_grad():
            for mean, now in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(now, 0.1)
finish(out, weights=weights(model), average=weights(average))
