"""A cache that grows with every iteration, and is emptied once."""

import torch
from common import again, batches, digest, finish, mlp, start, weights
from torch import optim

out = start()
model, data = mlp(), batches(5)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
cache: list[torch.Tensor] = []
sums = []
for step in range(40):
    again()
    inputs, classes = data[step % len(data)]
    hidden = model[:3](inputs)
    loss = torch.nn.functional.cross_entropy(model[3:](hidden), classes)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    cache.append(hidden.detach())
    if step == 20:
        sums.append(digest(*cache))
        del cache[::2]
    sums.append(sum(entry.sum().item() for entry in cache[-3:]))
finish(out, weights=weights(model), cache=digest(*cache), sums=sums)
