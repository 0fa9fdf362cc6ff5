"""Memory inside operators, besides their inputs and results.

A convolution on the CPU copies its operands into the best layout for the processor, which depends on the processor, the
channels and the library's version.  So the memory is measured and not guessed: the operator runs once for each shape on
two and three examples of real zeros, its requests are recorded, and their sizes grow linearly with the batch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._profiler import _EventType
from torch.autograd.profiler import profile
from torch.utils._python_dispatch import _disable_current_modes

from carpool.estimate.rehearsal.values import tensors_in

_FEW = (2, 3)  # examples
_aten = torch.ops.aten
#: Operators with large buffers of their own on the CPU, and which of their arguments have a batch dimension.
_PROBED: dict[Any, tuple[int, ...]] = {
    _aten.convolution.default: (0,),
    _aten.convolution_backward.default: (0, 1),
    _aten.native_batch_norm_backward.default: (0, 1),
    _aten._scaled_dot_product_flash_attention_for_cpu.default: (0, 1, 2),
    _aten._scaled_dot_product_flash_attention_for_cpu_backward.default: (0, 1, 2, 3, 4, 5),
    _aten.upsample_nearest2d.default: (0,),
    _aten.upsample_bilinear2d.default: (0,),
}
Requests = list[tuple[int, int]]  # slot and bytes, 0 for a return; slot -1 is the first result, -2 the second


@dataclass(frozen=True, slots=True)
class _Argument:
    """The properties of a tensor argument that decide about memory."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


class Scratch:
    """Allocations and frees inside operators, measured once per kind of call with small real tensors."""

    def __init__(self) -> None:
        self._found: dict[str, Requests | None] = {}

    def within(self, func: Any, args: Any, kwargs: Any) -> Requests | None:
        """Return the requests of a call in order; None: no known requests besides the results."""
        batched = _PROBED.get(func)
        if batched is None or args[0].device.type != "cpu":
            return None
        described = tuple(_describe(argument) for argument in args)
        key = repr((func, described, kwargs))
        if key not in self._found:
            self._found[key] = _find(func, described, kwargs, batched)
        return self._found[key]


def _describe(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return _Argument(tuple(argument.shape), tuple(argument.stride()), argument.dtype)
    return tuple(argument) if isinstance(argument, list) else argument


def _find(func: Any, args: tuple[Any, ...], kwargs: Any, batched: tuple[int, ...]) -> Requests | None:
    batch = args[batched[0]].shape[0]
    try:
        if batch <= _FEW[-1]:
            return _try(func, args, kwargs, batched, batch)
        fewer, more = (_try(func, args, kwargs, batched, count) for count in _FEW)
    except RuntimeError:  # no measurement is possible: the results alone are counted
        return None
    if [slot for slot, _ in fewer] != [slot for slot, _ in more]:
        return [(slot, size * batch // _FEW[1]) for slot, size in more]
    return [
        (slot, max(size, size + (size - small) * (batch - _FEW[1])) if size else 0)
        for (slot, size), (_, small) in zip(more, fewer, strict=True)
    ]


def _try(func: Any, args: tuple[Any, ...], kwargs: Any, batched: tuple[int, ...], batch: int) -> Requests:
    with _disable_current_modes(), torch.no_grad():
        real = [
            _zeros(a, batch if i in batched else None) if isinstance(a, _Argument) else a for i, a in enumerate(args)
        ]
        func(*real, **kwargs)  # memory that is made only once is not counted
        with silenced(), profile(profile_memory=True, use_kineto=True) as record:
            results = func(*real, **kwargs)
        places = {leaf.data_ptr(): index for index, leaf in enumerate(tensors_in(results))}
        return _requests(record, places)


def _zeros(like: _Argument, batch: int | None) -> torch.Tensor:
    shape = like.shape if batch is None else (batch, *like.shape[1:])
    return torch.empty_strided(shape, like.stride, dtype=like.dtype).zero_()


def _requests(record: profile, places: dict[int, int]) -> Requests:
    """Return the requests in a record.  ``places``: addresses of results; other memory may have had these before."""
    events = sorted(_allocations(record.kineto_results.experimental_event_tree()), key=lambda event: event[0])
    found: Requests = []
    slots: dict[int, int] = {}
    last = {pointer: index for index, (_, pointer, size) in enumerate(events) if size > 0}
    for index, (_, pointer, size) in enumerate(events):
        if size > 0:
            is_result = pointer in places and last[pointer] == index
            slots[pointer] = -1 - places[pointer] if is_result else index
            found.append((slots[pointer], size))
        elif pointer in slots:
            found.append((slots.pop(pointer), 0))
    return found


def _allocations(events: Any) -> list[tuple[int, int, int]]:
    """Return time, address and bytes (negative: freed) of each allocation, anywhere in the tree."""
    found = []
    for event in events:
        tag, fields = event.typed
        if tag == _EventType.Allocation and fields.ptr:
            found.append((event.start_time_ns, fields.ptr, fields.alloc_size))
        found += _allocations(event.children)
    return found


@contextmanager
def silenced() -> Iterator[None]:
    """Redirect the descriptors, not only Python's files: the profiler writes to the descriptors themselves."""
    sys.stdout.flush(), sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1), os.dup2(nowhere, 2)
        yield
    finally:
        for descriptor, target in zip(kept, (1, 2), strict=True):
            os.dup2(descriptor, target)
            os.close(descriptor)
        os.close(nowhere)
