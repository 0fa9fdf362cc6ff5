"""Weights from safetensors files, as PyTorch itself would load them, with every difference named."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from carpool.serve.model.skeleton import Unusable

#: The most differences that are listed.
_LISTED = 5


def read(module: nn.Module, path: Path) -> None:
    """Copy the weights of ``path`` (``*.safetensors``, or the ``*.safetensors.index.json`` of several) into the module.

    A tied weight may be there once or under each of its names.  Raises Unusable; the module may be half-filled then.
    """
    try:
        with ExitStack() as stack:
            _load(module, {key: file.get_tensor(key) for key, file in _files(path, stack).items()}, path)
    except SafetensorError as error:
        raise Unusable(f"{path} is not a valid safetensors file: {error}") from None
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror or error}") from None


def _files(path: Path, stack: ExitStack) -> dict[str, Any]:
    """Return the open file of each key."""
    if path.name.endswith(".json"):
        places = _index(path)
        opened = {name: stack.enter_context(_open(path.parent / name)) for name in sorted(set(places.values()))}
        keys = {name: set(file.keys()) for name, file in opened.items()}
        for key, name in places.items():
            if key not in keys[name]:
                raise Unusable(f"{path} says that {key} is in {name}, and it is not")
        return {key: opened[name] for key, name in places.items()}
    file = stack.enter_context(_open(path))
    return dict.fromkeys(file.keys(), file)


def _open(path: Path) -> Any:
    return safe_open(path, framework="pt")


def _index(path: Path) -> dict[str, str]:
    """Read the index: the file of each key.  The files lie beside it: a name that leads elsewhere is refused."""
    try:
        places = json.loads(path.read_bytes())["weight_map"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Unusable(f"{path} is not an index of safetensors files: it has no weight_map") from None
    if not isinstance(places, dict) or not all(isinstance(n, str) and Path(n).name == n for n in places.values()):
        raise Unusable(f"the weight_map of {path} must give the name of a file beside it for each tensor")
    return places


def _load(module: nn.Module, given: dict[str, Tensor], path: Path) -> None:
    expected = {key: value for key, value in module.state_dict().items() if isinstance(value, Tensor)}
    there = {expected[key].untyped_storage().data_ptr() for key in given.keys() & expected.keys()}
    lacking = expected.keys() - given.keys()
    _refuse(path, "lacks", [key for key in lacking if expected[key].untyped_storage().data_ptr() not in there])
    _refuse(path, "has tensors that the model does not know:", given.keys() - expected.keys())
    _refuse(path, "differs from the model in", [
        f"{key} ({_kind(given[key])} instead of {_kind(expected[key])})"
        for key in given if _kind(given[key]) != _kind(expected[key])
    ])  # fmt: skip
    try:
        module.load_state_dict(given, strict=False)
    except RuntimeError as error:
        raise Unusable(f"{path} cannot be loaded: {error}") from None


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _refuse(path: Path, what: str, found: Collection[str]) -> None:
    if found:
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        raise Unusable(f"{path} {what} {', '.join(sorted(found)[:_LISTED])}{more}")
