"""torch.compile for the model and its loss, by the backend that is the second argument."""

import sys

import torch
from common import again, batches, finish, loss_beside, meet, mlp, start, weights
from torch import optim

out = start(meet_later=True)  # when everything has been compiled
model, data = mlp(), batches(5)
fast = torch.compile(lambda batch: loss_beside(model, batch), backend=sys.argv[2])
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
losses = []
for step in range(40):
    again()
    optimizer.zero_grad()
    loss = fast(data[step % len(data)])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step == 1:
        meet()
finish(out, weights=weights(model), losses=losses)
