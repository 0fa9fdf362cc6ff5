"""Several backward passes per optimizer step."""

from common import batches, finish, loss_of, mlp, start, weights
from torch import optim

out = start()
model, data = mlp(), batches(8, rows=256)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
losses = []
for step in range(120):
    loss = loss_of(model, data[step % len(data)]) / 4
    loss.backward()
    losses.append(loss.item())
    if step % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
finish(out, weights=weights(model), losses=losses)
