"""Several OpenMP threads compute at the same time: matrix products, elementwise work, reductions, copies."""

import torch
from common import batches, digest, finish, loss_of, mlp, start, weights
from torch import optim

out = start()
assert torch.get_num_threads() > 1, "this is about several threads"
model, data = mlp(512), batches(5, rows=1024)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
field, moved = torch.linspace(-1, 1, 1 << 20), torch.empty(1 << 20)
for step in range(15):
    optimizer.zero_grad()
    loss_of(model, data[step % len(data)]).backward()
    optimizer.step()
    with torch.no_grad():
        torch.sin(field, out=moved)
        moved.mul_(0.99).add_(field, alpha=0.01)
        field, moved = moved, field
finish(out, weights=weights(model), field=digest(field))
