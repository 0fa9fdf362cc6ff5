"""Training with evaluation loops in between, and one at the end."""

import torch
from common import DEVICE, batches, finish, loss_of, mlp, start, weights
from torch import nn, optim

out = start()
model = nn.Sequential(mlp(), nn.BatchNorm1d(10)).to(DEVICE)
data, held_out = batches(5), batches(3)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


@torch.no_grad()
def evaluate() -> float:
    model.eval()
    total = sum(loss_of(model, batch).item() for batch in held_out)
    model.train()
    return total / len(held_out)


scores = [evaluate()]
for _ in range(8):
    for batch in data:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
    scores.append(evaluate())
model.eval()
with torch.inference_mode():
    answers = [int(model(batch[0]).argmax(1).sum()) for batch in held_out for _ in range(4)]
finish(out, weights=weights(model), scores=scores, answers=answers)
