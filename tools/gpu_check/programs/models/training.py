"""What is trained, on what, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class Training:
    """``loss`` is a forward pass over a batch that stays the same; a CUDA graph can hold everything."""

    net: nn.Module
    loss: Callable[[], Tensor]
    optimizer: torch.optim.Optimizer

    @property
    def parameters(self) -> int:
        return sum(each.numel() for each in self.net.parameters())

    def iteration(self) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss()
        loss.backward()
        self.optimizer.step()
        return loss


def adam(net: nn.Module, device: torch.device) -> torch.optim.Optimizer:
    """With its step count on the device, where a graph needs it."""
    return torch.optim.AdamW(net.parameters(), lr=1e-4, capturable=device.type == "cuda")


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
