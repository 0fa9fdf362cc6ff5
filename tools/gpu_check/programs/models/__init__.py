"""The models of the benchmarks, in plain PyTorch: no model library has to be installed.

Each maker takes a device and a batch size, and gives a `Training` with random data of the real shapes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .bert import bert
from .gpt import gpt
from .mlp import mlp
from .resnet import resnet50
from .training import Training

#: By name, with the batch size of the benchmarks.
MODELS: dict[str, tuple[Callable[[torch.device, int], Training], int]] = {
    "resnet50": (resnet50, 32),
    "bert": (bert, 16),
    "gpt": (gpt, 32),
    "mlp": (mlp, 16),
}

__all__ = ["MODELS", "Training"]
