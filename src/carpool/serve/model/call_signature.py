"""How a module is called with named tensors."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from carpool.serve.model.skeleton import Unusable

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Signature:
    """The positional arguments of `forward`.  Arguments without a name are called "input0", "input1" and so on."""

    def __init__(self, module: nn.Module) -> None:
        try:
            parameters = list(inspect.signature(module.forward).parameters.values())
        except (ValueError, TypeError):  # a compiled module has no signature
            parameters = []
        self._defaults = {each.name: each.default for each in parameters if each.kind in _POSITIONAL}

    def names(self, count: int) -> list[str]:
        """Return the names of the first ``count`` arguments."""
        known = list(self._defaults)[:count]
        return known + [f"input{place}" for place in range(len(known), count)]

    def arguments(self, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arguments by position; missing ones in between get their defaults.  Raises Unusable."""
        in_order = list(inputs) == self.names(len(inputs))
        if not in_order and (unknown := [name for name in inputs if name not in self._defaults]):
            raise Unusable(f"forward has no {', '.join(unknown)}; it has: {', '.join(self._defaults) or 'no names'}")
        needed = (name for name, default in self._defaults.items() if default is inspect.Parameter.empty)
        if missing := [name for name in needed if name not in inputs]:
            raise Unusable(f"forward also needs: {', '.join(missing)}")
        if in_order:
            return tuple(inputs.values())
        last = max(place for place, name in enumerate(self._defaults) if name in inputs)
        return tuple(inputs.get(name, default) for name, default in list(self._defaults.items())[: last + 1])
