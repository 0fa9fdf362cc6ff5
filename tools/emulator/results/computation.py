"""The computation of one operator on the CPU, once or at each replay of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .aliases import alias, flat, on_device, to_cpu
from .generators import Drawing


class WrongResult(RuntimeError):
    """The CPU's result is not of the form that the device's kernel gives."""


class Computation:
    """``compute`` with these arguments, where tensors on the device are their bytes, into the tensors of ``result``.

    What ``compute`` returns as None stays as the device's kernel has left it.
    """

    def __init__(
        self, compute: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        self._compute = compute
        self._args = [to_cpu(each) for each in args]
        self._kwargs = {name: to_cpu(each) for name, each in kwargs.items()}
        self._targets = [alias(part) if on_device(part) else None for part in flat(result)]

    def __call__(self, drawing: Drawing | None) -> None:
        """Raises WrongResult, and what the CPU's kernel raises."""
        drawn = {} if drawing is None else {"generator": drawing.cpu_generator()}
        found = flat(self._compute(*self._args, **self._kwargs, **drawn))
        if len(found) != len(self._targets):
            raise WrongResult(f"the CPU returns {len(found)} values, the device {len(self._targets)}")
        for target, value in zip(self._targets, found, strict=True):
            if target is not None and value is not None:
                _write(target, value)


def _write(target: torch.Tensor, tensor: torch.Tensor) -> None:
    if (target.shape, target.dtype) != (tensor.shape, tensor.dtype):
        forms = [f"{each.dtype} {tuple(each.shape)}" for each in (tensor, target)]
        raise WrongResult(f"the CPU computes {forms[0]}, the device {forms[1]}")
    if target.data_ptr() != tensor.data_ptr():
        target.copy_(tensor)
