"""Modules that the tests of one file each need: in a file of their own, because PyTorch takes seconds to import."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from carpool.serve.model import skeleton
from carpool.serve.model.profile import Inputs
from tests.serve import zoo


def alone(name: str, *runs: Inputs) -> list[object]:
    """What a model of the zoo computes without Carpool, run after run."""
    module = skeleton.build(getattr(zoo, name), 7, weights=True)
    with torch.inference_mode():
        return [module(*inputs) for inputs in runs]


class Words(nn.Module):
    def forward(self, ids: Tensor, kinds: Tensor | None = None, mask: Tensor | None = None, **rest: object) -> Tensor:
        return ids


class Many(nn.Module):
    def forward(self, first: Tensor, *others: Tensor) -> Tensor:
        return first


class Masked(nn.Module):
    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return ids


class Ops(TorchDispatchMode):  # type: ignore[misc]
    """The names of what is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.name())
        return func(*args, **(kwargs or {}))


class Backwards(nn.Module):
    """Modules are used in the opposite order of their names, one twice, and one's weight by a function."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(8, 8)
        self.third = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.first = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x))
        return nn.functional.linear(self.first(x), self.third.weight)


class Odd(Tensor):
    pass


class Bag(nn.Module):
    def __init__(self, **tensors: Tensor) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)
