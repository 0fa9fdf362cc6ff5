"""Calls of a module with named tensors, and a model's inputs and outputs, from the example of its module."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from carpool.serve.model.skeleton import Unusable
from carpool.serve.model.torch_tensors import datatype
from carpool.serve.oip.values import ModelMetadata, TensorSpec

EXAMPLE, DYNAMIC = "example_inputs", "dynamic_dims"
_HOW = (
    f"let the factory set its attribute `{EXAMPLE}`: a tensor, a tuple of tensors, or a dict by the names of forward's"
    " arguments, whose first dimension is the batch, as in `model.example_inputs = torch.zeros(1, 3, 224, 224)`"
)


class Example:
    """``inputs``: tensors by name, with ``max_batch`` rows (0: as they are).  Raises Unusable."""

    def __init__(self, module: nn.Module, max_batch: int) -> None:
        signature = Signature(module)
        self._max_batch = max_batch
        self._dynamic = getattr(module, DYNAMIC, {})
        given = _by_name(getattr(module, EXAMPLE, None), signature)
        self.inputs = {name: _rows(name, value, max_batch) for name, value in given.items()}
        self.arguments = signature.arguments(self.inputs)

    def describe(self, name: str, outputs: Mapping[str, Tensor]) -> ModelMetadata:
        """Return the model's metadata.

        ``outputs``: of the example.  Raises Unusable, and ModelFailed for a dtype that cannot be sent.
        """
        if self._max_batch > 1:
            for output, value in outputs.items():
                _check_output(output, value, self._max_batch)
        dynamic = _dynamic(self._dynamic, {**outputs, **self.inputs})
        taken, returned = (
            tuple(self._spec(each, value, dynamic) for each, value in values.items())
            for values in (self.inputs, outputs)
        )
        return ModelMetadata(name, taken, returned, self._max_batch)

    def _spec(self, name: str, value: Tensor, dynamic: Mapping[str, set[int]]) -> TensorSpec:
        free = dynamic.get(name, set()) | ({0} if self._max_batch else set())
        shape = tuple(-1 if place in free else size for place, size in enumerate(value.shape))
        return TensorSpec(name, datatype(name, value.dtype), shape)


def _by_name(given: Any, signature: Signature) -> dict[str, Tensor]:
    if isinstance(given, Mapping):
        named = dict(given)
    else:
        values = list(given) if isinstance(given, Sequence) else [given]
        named = dict(zip(signature.names(len(values)), values, strict=True))
    if given is None or not named:
        raise Unusable(f"the model does not describe its inputs: {_HOW}")
    for name, value in named.items():
        if not (isinstance(name, str) and isinstance(value, Tensor)):
            raise Unusable(f"{EXAMPLE}: {name!r} is a {type(value).__name__} instead of a tensor with a name: {_HOW}")
    return named


def _rows(name: str, value: Tensor, max_batch: int) -> Tensor:
    """Repeat the example's rows until there are ``max_batch``."""
    if not max_batch:
        return value
    if not value.dim() or not value.shape[0]:
        raise Unusable(f"{EXAMPLE}: {name!r} has shape {list(value.shape)}, without any row of a batch: {_HOW}")
    return value[torch.arange(max_batch) % value.shape[0]]


def _check_output(name: str, value: Tensor, max_batch: int) -> None:
    if not value.dim() or value.shape[0] != max_batch:
        raise Unusable(
            f"output {name!r} has shape {list(value.shape)} for a batch of {max_batch}, so it cannot be divided"
            " by requests: its first dimension must be the batch's, or register the model with --max-batch 1"
        )


def _dynamic(given: Any, known: Mapping[str, Tensor]) -> dict[str, set[int]]:
    """Return the dimensions that may have any size.  Raises Unusable."""
    try:
        found = {name: set(dims) for name, dims in given.items()}
        wrong = [name for name, dims in found.items() if not dims <= set(range(known[name].dim()))]
    except (AttributeError, TypeError, KeyError):
        wrong = [repr(given)]
    if wrong:
        known_as = ", ".join(known)
        raise Unusable(
            f"{DYNAMIC} names dimensions of {known_as}, as in {{'ids': [1]}}; wrong there: {', '.join(wrong)}"
        )
    return found


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Signature:
    """The positional arguments of `forward`.  Arguments without a name are called "input0", "input1" and so on."""

    def __init__(self, module: nn.Module) -> None:
        try:
            parameters = list(inspect.signature(module.forward).parameters.values())
        except (ValueError, TypeError):  # a compiled module has no signature
            parameters = []
        self._defaults = {each.name: each.default for each in parameters if each.kind in _POSITIONAL}
        self._needed = [name for name, default in self._defaults.items() if default is inspect.Parameter.empty]

    def names(self, count: int) -> list[str]:
        """Return the names of the first ``count`` arguments."""
        known = list(self._defaults)[:count]
        return known + [f"input{place}" for place in range(len(known), count)]

    def arguments(self, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arguments by position; missing ones in between get their defaults.  Raises Unusable."""
        in_order = list(inputs) == self.names(len(inputs))
        if not in_order and (unknown := sorted(inputs.keys() - self._defaults.keys())):
            raise Unusable(f"forward has no {', '.join(unknown)}; it has: {', '.join(self._defaults) or 'no names'}")
        if missing := [name for name in self._needed if name not in inputs]:
            raise Unusable(f"forward also needs: {', '.join(missing)}")
        if in_order:
            return tuple(inputs.values())
        last = max(map(list(self._defaults).index, inputs))
        return tuple(inputs.get(name, default) for name, default in list(self._defaults.items())[: last + 1])
