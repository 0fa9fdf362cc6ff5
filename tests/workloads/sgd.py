"""The plainest loop there is."""

from common import batches, finish, loss_of, mlp, start, weights
from torch import optim

out = start()
model, data = mlp(), batches(5)
optimizer = optim.SGD(model.parameters(), lr=0.05)
losses = []
for step in range(40):
    optimizer.zero_grad()
    loss = loss_of(model, data[step % len(data)])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
finish(out, weights=weights(model), losses=losses)
