"""The order in which storages are first used, and the computing time in between: measured once and kept.

A *layer* is the set of storages that one operation is the first to use, with the time until the next such operation.
The order is that of operations as PyTorch dispatches them, not that of modules: this handles tied weights, functions
that take parameters of other modules, and modules that run twice.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from carpool.protocol import records
from carpool.serve.model.skeleton import Storage, memory_of
from carpool.serve.plan.grouping import LinkCost
from carpool.serve.plan.manifest import Layer, Profile

_VERSION = 4
_RUNS = 3

Inputs = tuple[Any, ...]


def profile_key(weights: bytes, factory: str, inputs: Inputs) -> str:
    """Return the key of a profile.  ``weights``: their digest.  Threads count, too: they change computing times."""
    shapes = [
        f"{leaf.dtype} {tuple(leaf.shape)}" if isinstance(leaf, Tensor) else repr(leaf) for leaf in tree_leaves(inputs)
    ]
    parts = [str(_VERSION), weights.hex(), factory, torch.__version__, str(torch.get_num_threads()), *shapes]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def stored(path: Path, key: str, storages: int) -> Profile | None:
    """Return the profile kept at ``path``, or None if it has another key or is broken."""
    try:
        profile = records.decode(path.read_bytes(), Profile)
    except (OSError, records.Malformed):
        return None
    named = sorted([s for layer in profile.layers for s in layer.storages] + list(profile.private))
    usable = profile.key == key and profile.layers and named == list(range(storages))
    return profile if usable else None


def keep(profile: Profile, path: Path) -> None:
    """Write a profile in one step, so that no process ever reads half of it.  Raises OSError."""
    partial = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        partial.write_bytes(records.encode(profile))
        partial.replace(path)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()


def measure(module: nn.Module, inputs: Inputs, storages: Sequence[Storage], key: str, link: LinkCost) -> Profile:
    """Run the module a few times and measure it.  ``link``: as measured.

    Changes that the module makes to its own tensors are undone.
    """
    before = [memory_of(storage).clone() for storage in storages]
    _timed(module, inputs)  # warm-up of libraries
    watches = [_watched(module, inputs, storages) for _ in range(_RUNS)]
    total = statistics.median([_timed(module, inputs) for _ in range(_RUNS)])
    private = {storage for watch in watches for storage in watch.written}
    for index, (storage, bytes_) in enumerate(zip(storages, before, strict=True)):
        if not torch.equal(memory_of(storage), bytes_):
            private.add(index)
            memory_of(storage).copy_(bytes_)
    return Profile(key, _layers(watches, total, storages, private), tuple(sorted(private)), int(total), link)


def _layers(watches: list[_Watch], total: float, storages: Sequence[Storage], private: set[int]) -> tuple[Layer, ...]:
    """Return the layers in the order of the first run.

    Storages that no run has used come last, in case they are used.
    """
    uses = watches[0].uses
    alike = [watch for watch in watches if watch.uses == uses]
    own = statistics.median([watch.end - watch.begin for watch in alike])  # watching takes time, too
    layers = []
    for index, used in enumerate(uses):
        spent = statistics.median([watch.times[index + 1] - watch.times[index] for watch in alike])
        layers.append(_layer([s for s in used if s not in private], int(spent * total / own), storages))
    rest = set(range(len(storages))).difference(private, *uses)
    if rest or not layers:
        layers.append(_layer(sorted(rest), 0, storages))
    return tuple(layers)


def _layer(used: list[int], compute_ns: int, storages: Sequence[Storage]) -> Layer:
    return Layer(tuple(used), sum(storages[s].size for s in used), compute_ns)


def _timed(module: nn.Module, inputs: Inputs) -> int:
    with torch.inference_mode():
        begin = time.perf_counter_ns()
        module(*inputs)
        return time.perf_counter_ns() - begin


def _watched(module: nn.Module, inputs: Inputs, storages: Sequence[Storage]) -> _Watch:
    watch = _Watch(storages)
    with torch.inference_mode(), watch:
        watch.begin = time.perf_counter_ns()
        module(*inputs)
        watch.end = time.perf_counter_ns()
    return watch


class _Watch(TorchDispatchMode):  # type: ignore[misc]
    """``uses``: storages by the operation that used them first; ``written``: those that an operation says it writes."""

    def __init__(self, storages: Sequence[Storage]) -> None:
        super().__init__()
        self._places = {storage.address: index for index, storage in enumerate(storages)}
        self._seen: set[int] = set()
        self._times: list[int] = []
        self.uses: list[list[int]] = []
        self.written: set[int] = set()
        self.begin = self.end = 0

    @property
    def times(self) -> list[int]:
        """The times of each first use, and of the end."""
        return [*self._times, self.end]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not func.is_view:
            fresh = [place for place in self._storages((args, kwargs)) if place not in self._seen]
            if fresh:
                self._times.append(time.perf_counter_ns())
                self.uses.append(list(dict.fromkeys(fresh)))
                self._seen.update(fresh)
            self._note_writes(func, args, kwargs)
        return func(*args, **kwargs)

    def _storages(self, values: Any) -> list[int]:
        tensors = (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor) and leaf.layout is torch.strided)
        found = (self._places.get(tensor.untyped_storage().data_ptr()) for tensor in tensors)
        return [place for place in found if place is not None]

    def _note_writes(self, func: Any, args: Any, kwargs: Any) -> None:
        if not func._schema.is_mutable:
            return
        for index, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[index] if index < len(args) else kwargs.get(argument.name)
                self.written.update(self._storages(value))
