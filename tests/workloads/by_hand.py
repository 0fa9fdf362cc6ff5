"""Weights updated by hand; the script names its iterations itself (it does nothing outside of Carpool)."""

import sys
from pathlib import Path

import torch
from common import batches, finish, loss_of, mlp, start, weights

try:
    import carpool
except ImportError:  # a machine without Carpool
    sys.path.append(str(Path(__file__).resolve().parents[2] / "src"))
    import carpool

out = start()
model, data = mlp(), batches(5)
losses = []
for step in range(40):
    with carpool.iteration():
        loss = loss_of(model, data[step % len(data)])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for weight, gradient in zip(model.parameters(), gradients, strict=True):
                weight -= 0.05 * gradient
        losses.append(loss.item())
    carpool.progress(step + 1, 40)
finish(out, weights=weights(model), losses=losses)
