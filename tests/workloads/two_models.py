"""Two models of different sizes that train in turn, in one process."""

from common import batches, finish, loss_of, mlp, start, weights
from torch import optim

out = start()
small, large = mlp(128), mlp(384)
data = batches(4)
optimizers = {
    small: optim.Adam(small.parameters(), lr=1e-3),
    large: optim.SGD(large.parameters(), lr=0.05, momentum=0.9),
}
losses = []
for step in range(45):
    model = large if step % 3 == 2 else small
    optimizers[model].zero_grad()
    loss = loss_of(model, data[step % len(data)])
    loss.backward()
    optimizers[model].step()
    losses.append(loss.item())
finish(out, weights=weights(small, large), losses=losses)
