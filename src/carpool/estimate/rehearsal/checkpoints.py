"""Descriptions of what a rehearsed script saves and loads again: its files would have no weights."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map

from carpool.estimate.rehearsal.values import known, tell


@dataclass(frozen=True, slots=True, eq=False)
class _Saved:
    """A tensor without its memory."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    value: torch.Tensor | None  # the tensor's numbers, if known
    is_parameter: bool


class Checkpoints:
    """Replaces `torch.save` and `torch.load`; a file that the script has not saved itself is really read."""

    def __init__(self) -> None:
        self._load = torch.load
        self._saved: dict[str, Any] = {}
        self._files: list[Any] = []  # their ids are keys, so they stay

    def save(self, obj: object, f: Any, *_: Any, **__: Any) -> None:
        """Note what would be saved to ``f``."""
        if not _path(f):
            self._files.append(f)
        self._saved[_key(f)] = _described(obj)

    def load(self, f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return what was saved to ``f``, or really read the file."""
        return self.load_by(self._load, f, map_location, *args, **kwargs)

    def load_by(self, load: Callable[..., Any], f: Any, map_location: Any, *args: Any, **kwargs: Any) -> Any:
        """Load what was saved to ``f``; ``load`` reads files that the script has not written itself."""
        if _key(f) not in self._saved:
            return load(f, map_location, *args, **kwargs)
        device = torch.device(map_location) if isinstance(map_location, str | torch.device) else None
        return _made(self._saved[_key(f)], device)


def _key(file: Any) -> str:
    path = _path(file)
    return os.path.realpath(path) if path else f"file {id(file)}"


def _path(file: Any) -> str:
    """Return a path as text, or the path of an open file; empty if the file has none."""
    name = file if isinstance(file, str | os.PathLike) else getattr(file, "name", "")
    return os.fspath(name) if isinstance(name, str | os.PathLike) else ""


def _described(content: object) -> object:
    """Replace tensors by descriptions; equal views of one storage have one description."""
    found: dict[tuple[Any, ...], _Saved] = {}

    def describe(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        shape, stride = tuple(leaf.shape), tuple(leaf.stride())
        key = (leaf.untyped_storage()._cdata, leaf.storage_offset(), shape, stride, leaf.dtype)
        if key not in found:
            is_parameter = isinstance(leaf, torch.nn.Parameter)
            found[key] = _Saved(shape, stride, leaf.dtype, leaf.device, known(leaf), is_parameter)
        return found[key]

    return tree_map(describe, content)


def _made(content: object, device: torch.device | None) -> object:
    made: dict[_Saved, torch.Tensor] = {}

    def make(leaf: Any) -> Any:
        if not isinstance(leaf, _Saved):
            return copy.deepcopy(leaf)
        if leaf not in made:
            made[leaf] = _tensor(leaf, device)
        return made[leaf]

    return tree_map(make, content)


def _tensor(saved: _Saved, device: torch.device | None) -> torch.Tensor:
    tensor = torch.empty_strided(saved.shape, saved.stride, dtype=saved.dtype, device=device or saved.device)
    if saved.value is not None:
        tell(tensor, saved.value)
    return torch.nn.Parameter(tensor) if saved.is_parameter else tensor
