"""Adam, a learning-rate schedule and dropout: state that the first step makes, and random numbers."""

from common import batches, digest, finish, loss_of, mlp, start, weights
from torch import nn, optim

out = start()
model, data = nn.Sequential(mlp(), nn.Dropout(0.2)), batches(5)
optimizer = optim.AdamW(model.parameters(), lr=1e-3)
schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
losses = []
for step in range(40):
    loss = loss_of(model, data[step % len(data)])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    schedule.step()
    losses.append(loss.item())
moments = [value for state in optimizer.state.values() for value in state.values()]
finish(out, weights=weights(model), moments=digest(*moments), losses=losses)
