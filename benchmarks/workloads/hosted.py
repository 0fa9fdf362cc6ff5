"""Models for `carpool serve`: PipeSwitch's three, and a small one.

``resnet152``, ``inception_v3`` and ``bert_base`` take images and sentences of half the usual size; those of the usual
size have it in their names.
Each has a *twin* with other weights: where a device has room for one of them only, each request for one makes the other
leave.  If ``BENCH_MARKS`` names a file, every answer writes three times (nanoseconds of CLOCK_MONOTONIC) to its
beginning: the model is called, its first layer with weights is computed, all is computed.  A GPU is waited for.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.workloads import inception
from benchmarks.workloads.transmit import bert_base as _bert_base
from benchmarks.workloads.transmit import images, words
from benchmarks.workloads.transmit import resnet152 as _resnet152

MARKS = "BENCH_MARKS"
TIMES = struct.Struct("=3q")
ROWS = 8
TWIN = "_twin"


class _First(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


def _sentences() -> nn.Module:
    """BERT-base that returns what stands for the whole sentence, instead of the probability of every word."""
    module = _bert_base()
    module.head = _First()
    return module


def _small() -> nn.Module:
    """Hardly anything to compute, but weights enough to be noticed."""
    return nn.Sequential(nn.Flatten(), *(layer for _ in range(12) for layer in (nn.Linear(768, 768), nn.ReLU())))


#: What makes each, and an input of so many rows.
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "resnet152": (_resnet152, lambda rows: images(rows, 112)),
    "inception_v3": (inception.network, lambda rows: images(rows, 149)),
    "bert_base": (_sentences, lambda rows: words(rows, 64)),
    "resnet152_224": (_resnet152, lambda rows: images(rows, 224)),
    "inception_v3_299": (inception.network, lambda rows: images(rows, 299)),
    "bert_base_128": (_sentences, lambda rows: words(rows, 128)),
    "small": (_small, lambda rows: images(rows, 16)),
}


def weights_bytes(name: str) -> int:
    return sum(tensor.nbytes for tensor in MODELS[name][0]().state_dict().values())


def batch(name: str) -> Tensor:
    """A request, with `ROWS` rows."""
    torch.manual_seed(0)
    return MODELS[name][1](ROWS)


def hosted(name: str) -> nn.Module:
    kind = name.removesuffix(TWIN)
    torch.manual_seed(int(kind != name))  # or twins would be the same model
    factory, example = MODELS[kind]
    module = factory()
    module.example_inputs = example(1)
    if (path := os.environ.get(MARKS)) is not None:
        _mark(module, path)
    return module


def _mark(module: nn.Module, path: str) -> None:
    times = [0, 0, 0]
    file = os.open(path, os.O_WRONLY)

    def marks(number: int) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            if number and torch.cuda.is_initialized():
                torch.cuda.current_stream().synchronize()
            times[number] = time.monotonic_ns()
            if number == 2:
                os.pwrite(file, TIMES.pack(*times), 0)

        return hook

    first = next(each for each in module.modules() if list(each.parameters(recurse=False)))
    module.register_forward_pre_hook(marks(0))
    first.register_forward_hook(marks(1))
    module.register_forward_hook(marks(2))


#: The factories, by name.
globals().update({name: partial(hosted, name) for kind in MODELS for name in (kind, kind + TWIN)})


class Affine(nn.Module):
    """Nothing to compute: what remains is what a request costs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.example_inputs = {"x": torch.ones(1, 3)}

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"y": self.layer(x)}


def affine() -> nn.Module:
    return Affine()
