"""Numbers for optimizers, and the steps in which they create state."""

from __future__ import annotations

import heapq
import weakref
from typing import Any


class _Record:
    __slots__ = ("counted", "creates_state", "number", "parameters", "reference")

    def __init__(self, number: int, reference: weakref.ref[Any]) -> None:
        self.number = number
        self.reference = reference
        self.counted = 0  # parameters when the latest step began
        self.parameters = 0  # how many parameters have been through a step
        self.creates_state = 0


class Optimizers:
    """Gives every optimizer a small number while it lives.

    Optimizers are told apart by identity and never kept alive.
    """

    def __init__(self) -> None:
        self._records: dict[int, _Record] = {}
        self._free: list[int] = []

    def step_begins(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, int]:
        """Return the optimizer's number, and 1 if this step creates lasting state (momentum and the like), else 0.

        Optimizers create such state in the first step that a parameter goes through.  ``args`` starts with the
        optimizer itself.
        """
        record = self._records.get(id(optimizer)) or self._meet(optimizer)
        record.counted = _parameters(optimizer)
        record.creates_state = int(record.counted > record.parameters and _closure(args, kwargs) is None)
        return record.number, record.creates_state

    def step_ends(self, optimizer: Any) -> tuple[int, int]:
        """Return what `step_begins` returned for the step that ends."""
        record = self._records.get(id(optimizer)) or self._meet(optimizer)
        record.parameters = record.counted
        return record.number, record.creates_state

    def _meet(self, optimizer: Any) -> _Record:
        key = id(optimizer)
        number = heapq.heappop(self._free) if self._free else len(self._records)
        push = heapq.heappush  # a local: the last optimizers die with the interpreter, whose modules are empty by then

        def forget(reference: weakref.ref[Any]) -> None:
            if self._records.pop(key, None) is not None:
                push(self._free, number)

        self._records[key] = _Record(number, weakref.ref(optimizer, forget))
        return self._records[key]


def _parameters(optimizer: Any) -> int:
    """Count the parameters, because groups and parameters may be added between steps."""
    count = 0
    for group in optimizer.param_groups:
        count += len(group["params"])
    return count


def _closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the step's closure; it contains a whole forward and backward pass, whose memory does not live on."""
    return args[1] if len(args) > 1 else kwargs.get("closure")
