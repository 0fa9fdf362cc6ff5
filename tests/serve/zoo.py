"""Models that are hard to serve, each in its own way, and inputs for them.  Small: what counts is how they are made."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name
from torch.nn.utils.parametrizations import weight_norm

from carpool.serve.plan.manifest import Profile


def per_layer(profile: Profile) -> tuple[int, ...]:
    """A group for each layer: as many as there can be."""
    return tuple(range(1, len(profile.layers) + 1))


WIDTH = 160  # so that a weight is more than a page
ANSWERS = itertools.count(1)


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.body(x))


def residual() -> nn.Module:
    """Running averages that differ from their first values."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3), *(Residual(32) for _ in range(4)), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with torch.no_grad():
        model.train()(torch.randn(4, 3, 12, 12))
    return model


class Tied(nn.Module):
    """The embedding is the head's weight, too, and one block runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.word = nn.Embedding(500, WIDTH)
        self.block = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True)
        self.last = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 500, bias=False)
        self.head.weight = self.word.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.word(words)
        return self.head(self.last(self.block(self.block(x))))


class Rotary(nn.Module):
    """Tables: a buffer that no file has, a plain attribute, and random numbers that belong to the model."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(16.0), 10_000 ** (-torch.arange(0, WIDTH, 2) / WIDTH))
        self.register_buffer("cosine", angles.cos().repeat(1, 2), persistent=False)
        self.sine = angles.sin().repeat(1, 2)
        self.register_buffer("features", torch.randn(WIDTH, WIDTH), persistent=False)
        self.scale = float(torch.linspace(0, 1, 5).sum())
        self.query = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q = self.query(x)
        turned = torch.cat((-q[..., WIDTH // 2 :], q[..., : WIDTH // 2]), -1)
        return (q * self.cosine + turned * self.sine) @ self.features * self.scale


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, bidirectional=True, batch_first=True)
        self.norm = weight_norm(nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.lstm(x)[0])


class Branching(nn.Module):
    """What the profile sees says nothing about the other branch, nor about the order in which experts are used."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))
        self.rest = nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return F.linear(self.experts[0](x), self.experts[5].weight.t())
        for expert in reversed(self.experts):
            x = torch.tanh(expert(x))
        return x @ self.rest


class Counting(nn.Module):
    """Buffers that computing writes: one where PyTorch can see it, one where it cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("hidden", torch.zeros(4))
        self.register_buffer("same", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += x.shape[0]
        self.hidden.numpy()[:] += 1
        self.same.fill_(1)
        return self.layer(x) + self.seen + self.hidden.sum() + self.same.sum()


class Needy(nn.Module):
    """It looks at its initial weights while it is made."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.largest = self.layer.weight.detach().abs().max()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) / self.largest


class Refusing(Needy):
    def __init__(self) -> None:
        super().__init__()
        if self.largest == 0:
            raise RuntimeError("these weights cannot be right")


class Copying(nn.Module):
    """What it computes with is a copy of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        nn.init.normal_(self.layer.weight)
        self.kept: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = self.layer.weight * next(ANSWERS)
        return x @ self.kept


class Shared(nn.Module):
    """Parameters that are parts of one piece of memory, one of them transposed."""

    def __init__(self) -> None:
        super().__init__()
        whole = torch.randn(3, WIDTH, WIDTH)
        self.first, self.second = nn.Parameter(whole[0]), nn.Parameter(whole[2].t())

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.first @ self.second


#: Their factories.
tied, rotary, recurrent, branching, counting = Tied, Rotary, Recurrent, Branching, Counting
needy, refusing, copying, shared = Needy, Refusing, Copying, Shared


def brain() -> nn.Module:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4))).to(torch.bfloat16)


def traced() -> nn.Module:
    """No Python runs in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.trace(brain().float().eval(), _vectors())


def dropping() -> nn.Module:
    """Random numbers in every answer."""
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), Dropping())


class Dropping(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5, training=True)


def not_a_module() -> Any:
    return 3


def lazy() -> nn.Module:
    return nn.LazyLinear(3)


def on_meta() -> nn.Module:
    return nn.Linear(3, 3, device="meta")


def empty() -> nn.Module:
    return nn.ReLU()


def same_random(*shape: int) -> Tensor:
    """The same numbers each time.  A generator of its own would need parts of PyTorch that `tests/lean` leaves out."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return torch.rand(*shape)


def _vectors() -> Tensor:
    return same_random(2, 16, WIDTH)


#: By the name of the factory.
INPUTS: dict[str, Callable[[], Tensor]] = {
    "residual": lambda: same_random(2, 3, 12, 12),
    "tied": lambda: torch.arange(32).reshape(2, 16),
    "rotary": _vectors,
    "recurrent": _vectors,
    "branching": _vectors,
    "counting": _vectors,
    "needy": _vectors,
    "refusing": _vectors,
    "shared": _vectors,
    "brain": lambda: _vectors().bfloat16(),
    "traced": _vectors,
}
