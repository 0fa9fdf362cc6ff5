"""The model that is asked: a dozen layers, for `carpool serve` and for a job of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tools.demo.programs.questions import WIDTH

LAYERS = 12


def example() -> Tensor:
    """One row."""
    return torch.ones(1, WIDTH)


def network() -> nn.Module:
    torch.manual_seed(0)
    module = nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))
    module.example_inputs = example()
    return module
