"""LBFGS: closures, several forward passes per step, a history of old gradients."""

from common import batches, finish, loss_of, mlp, start, weights
from torch import Tensor, optim

out = start()
model, (batch,) = mlp(128), batches(1)
optimizer = optim.LBFGS(model.parameters(), lr=0.2, max_iter=3, history_size=5)
losses = []


def closure() -> Tensor:
    optimizer.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    losses.append(loss.item())
    return loss


for _ in range(30):
    optimizer.step(closure)
finish(out, weights=weights(model), losses=losses)
