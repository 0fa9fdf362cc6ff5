"""Exceptions in mid-iteration: in the forward pass, in the backward pass, in the optimizer."""

import torch
from common import DEVICE, batches, finish, loss_of, mlp, start, weights
from torch import optim

out = start()
model, data = mlp(), batches(5)
optimizer = optim.Adam(model.parameters(), lr=1e-3)


class Stumble(torch.autograd.Function):
    @staticmethod
    def forward(context: object, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(context: object, gradient: torch.Tensor) -> torch.Tensor:
        raise ArithmeticError("in the backward pass")


caught = []
for step in range(40):
    optimizer.zero_grad()
    try:
        if step % 7 == 3:
            model[:3](data[0][0]) @ torch.ones(3, 3, device=DEVICE)  # shapes do not fit
        loss = loss_of(model, data[step % len(data)])
        (Stumble.apply(loss) if step % 7 == 5 else loss).backward()
        optimizer.param_groups[0]["lr"] = None if step % 7 in (0, 6) else 1e-3
        optimizer.step()
    except (RuntimeError, ArithmeticError, TypeError) as error:
        caught.append(f"{step} {type(error).__name__}")
assert len(caught) > 15, caught
finish(out, weights=weights(model), caught=caught)
