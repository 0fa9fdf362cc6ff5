"""Bound by launches: many small layers, a small batch."""

from __future__ import annotations

import torch
from torch import nn

from .training import Training, sgd

LAYERS, WIDTH, CLASSES = 30, 64, 10


def mlp(device: torch.device, batch: int) -> Training:
    hidden = [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    net = nn.Sequential(*hidden, nn.Linear(WIDTH, CLASSES)).to(device)
    data, labels = torch.randn(batch, WIDTH, device=device), torch.randint(CLASSES, (batch,), device=device)
    return Training(net, lambda: nn.functional.cross_entropy(net(data), labels), sgd(net))
