"""Models to be served, by name: `gpt3` is the benchmark's family `gpt` with weights of the seed 3.

A process that makes one computes without libraries that only the CPU has, from then on.  `bert` is not among them: its
layers choose their operators by the device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[4] / "benchmarks" / "workloads"))
import families

SERVED = ("mlp", "cnn", "resnet", "vgg", "mobilenet", "densenet", "gpt", "vit", "unet")


def names(count: int) -> list[str]:
    return [f"{SERVED[number % len(SERVED)]}{number // len(SERVED)}" for number in range(count)]


def example(name: str, seed: int) -> Tensor:
    """One row."""
    torch.manual_seed(seed)
    return families.batch_of(families.FAMILIES[name[:-1]])[0][:1].clone()


def model(name: str) -> nn.Module:
    torch.backends.mkldnn.enabled = False
    torch.backends.nnpack.set_flags(False)
    torch.manual_seed(int(name[-1]))
    made = families.FAMILIES[name[:-1]].model()
    made.example_inputs = example(name, 0)
    return made.eval()


def __getattr__(name: str) -> Callable[[], nn.Module]:
    if name not in names(100):
        raise AttributeError(name)
    return lambda: model(name)
