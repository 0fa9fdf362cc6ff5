"""Train models of the benchmark's families, one after another: ``train.py RESULT ITERATIONS FAMILY...``.

Dropout is switched off: its numbers are the device's own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from common import DEVICE, again, digest, finish, meet, state_of
from torch import nn

sys.path.append(str(Path(__file__).parents[4] / "benchmarks" / "workloads"))
import families


def dry(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Dropout | nn.MultiheadAttention):
            setattr(module, "p" if isinstance(module, nn.Dropout) else "dropout", 0.0)
    return model


def optimizer_of(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """As the CPU would choose, on every device."""
    optimizer = families.optimizer_for(name, model)
    for group in optimizer.param_groups:
        group["foreach"] = group["fused"] = False
    return optimizer


def trained(name: str, iterations: int) -> dict[str, object]:
    torch.manual_seed(0)
    family = families.FAMILIES[name]
    model = dry(family.model()).to(DEVICE)
    optimizer = optimizer_of(family.optimizer, model)
    losses = []
    for _ in range(iterations):
        again()
        inputs, target = (tensor.to(DEVICE) for tensor in families.batch_of(family))
        optimizer.zero_grad()
        loss = families.loss_of(family, model(inputs), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"weights": digest(model.state_dict().values()), "state": digest(state_of(optimizer)), "losses": losses}


if __name__ == "__main__":
    meet()
    iterations, names = int(sys.argv[2]), sys.argv[3:]
    finish(**{name: trained(name, iterations) for name in names})
