"""Other Python threads compute with tensors of their own while the main thread trains."""

import threading

import torch
from common import DEVICE, batches, digest, finish, loss_of, mlp, start, weights
from torch import Tensor, optim

out = start()
model, data = mlp(), batches(5)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
results: dict[int, Tensor] = {}


def compute(number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    matrix = (torch.randn(256, 256, generator=generator) / 16).to(DEVICE)
    state = torch.eye(256, device=DEVICE)
    for _ in range(60):
        state = torch.tanh(state @ matrix) + 0.5 * state
    results[number] = state


others = [threading.Thread(target=compute, args=(number,)) for number in range(2)]
for thread in others:
    thread.start()
for step in range(40):
    optimizer.zero_grad()
    loss_of(model, data[step % len(data)]).backward()
    optimizer.step()
for thread in others:
    thread.join()
finish(out, weights=weights(model), others=[digest(results[0]), digest(results[1])])
