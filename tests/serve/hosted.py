"""Models as users write them for `carpool serve`, with an example of what they take; some stop where a test wants it.

A model *says* where it is by a byte into the pipe that ``TEST_SAYS`` names, if it names one, and may stay there.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tests.serve import zoo
from tests.serve.zoo import WIDTH

SAYS = "TEST_SAYS"


def say() -> bool:
    """False: nobody listens."""
    path = os.environ.get(SAYS)
    if path is None:
        return False
    with open(path, "wb") as pipe:
        pipe.write(b"x")
    return True


def say_and_stay() -> None:
    if say():
        signal.pause()


def with_example(name: str) -> nn.Module:
    model = getattr(zoo, name)()
    model.example_inputs = zoo.INPUTS[name]()
    return model


brain, residual, tied, refusing = (partial(with_example, name) for name in ("brain", "residual", "tied", "refusing"))


class Linear(nn.Module):
    """Two inputs, and what else they may bring about."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("scale", torch.full((WIDTH,), 2.0))
        self.example_inputs = {"x": torch.ones(1, WIDTH), "what": torch.zeros(1, dtype=torch.int64)}

    def forward(self, x: Tensor, what: Tensor) -> dict[str, Tensor]:
        self.happens(int(what.max()))
        return {"y": self.layer(x) * self.scale, "twice": x * 2}

    def happens(self, what: int) -> None:
        """Nothing if it is 0."""


class Trying(Linear):
    def happens(self, what: int) -> None:
        match what:
            case 1:
                raise LookupError("no such word")
            case 2:
                sys.exit("enough")
            case 3:
                say_and_stay()
            case 4:
                say()  # and go on, to weights that may not be there


class Stepping(Linear):
    """If it is told so it computes for ever: layer after layer, or in one piece."""

    def forward(self, x: Tensor, what: Tensor) -> dict[str, Tensor]:
        while int(what.max()) == 1:
            self.layer(x)
        return super().forward(x, what)


class Tampering(Linear):
    """It writes into a weight, which the profile run did not see."""

    def happens(self, what: int) -> None:
        if what:
            self.layer.weight.fill_(0)


trying, stepping, tampering, other = Trying, Stepping, Tampering, Linear
without_example = zoo.brain


def staying() -> nn.Module:
    say_and_stay()
    return Linear()


def raising() -> nn.Module:
    raise LookupError("no such architecture")


def leaving() -> nn.Module:
    sys.exit(3)


def dying() -> nn.Module:
    os._exit(5)


def killed() -> Any:
    os.kill(os.getpid(), signal.SIGKILL)
