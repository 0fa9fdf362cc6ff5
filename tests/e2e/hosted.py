"""Models for `carpool serve`, some MiB each, which stop or die where a test wants it.

``what`` of a request says what happens, once: each is a file in the directory that ``TEST_STAGE`` names, and whoever
removes it is the one to whom it happens.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from tests.e2e.fates import DIE_HALFWAY, NOTHING, STAGE, STAY, WIDTH


class Deep(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(layers))
        self.example_inputs = {"x": torch.ones(1, WIDTH), "what": torch.zeros(1, dtype=torch.int64)}

    def forward(self, x: Tensor, what: Tensor) -> Tensor:
        fate = int(what.max())
        for place, layer in enumerate(self.layers):
            if place == 0 or (place == len(self.layers) // 2 and fate == DIE_HALFWAY):
                happens(fate, place)
            x = torch.tanh(layer(x))
        return x


def happens(fate: int, place: int) -> None:
    if fate == NOTHING or (fate == DIE_HALFWAY and place == 0):
        return
    try:
        (stage() / str(fate)).unlink()
    except FileNotFoundError:
        return
    if fate == STAY:
        until_let_go()
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def until_let_go() -> None:
    """Says that it is here, and stays until the test removes that."""
    here = stage() / "here"
    here.touch()
    while here.exists():
        time.sleep(0.002)


def stage() -> Path:
    return Path(os.environ[STAGE])


def small() -> nn.Module:
    return Deep(6)


def middle() -> nn.Module:
    return Deep(12)


def large() -> nn.Module:
    return Deep(18)


def huge() -> nn.Module:
    return Deep(60)
