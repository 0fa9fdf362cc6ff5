"""CPU tensors over the bytes of tensors on an emulated device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_CPU = torch.device("cpu")


def on_device(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cuda"


def alias(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor of the same bytes, sizes, strides and lazy bits, without any history.  It owns nothing."""
    storage = tensor.untyped_storage()
    if storage.nbytes():
        bytes_ = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), _CPU, storage.nbytes())
    else:
        bytes_ = torch.UntypedStorage(0)
    made = torch.empty(0, dtype=tensor.dtype)
    made.set_(bytes_, tensor.storage_offset(), tensor.size(), tensor.stride())
    torch._C._set_conj(made, tensor.is_conj())
    torch._C._set_neg(made, tensor.is_neg())
    return made


def to_cpu(value: Any) -> Any:
    """An argument as the CPU's kernel takes it: aliases for tensors on the device, the CPU for devices."""
    if on_device(value):
        return alias(value)
    if isinstance(value, torch.device):
        return _CPU if value.type == "cuda" else value
    return mapped(to_cpu, value)


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """The same list or tuple of what the function makes of its elements; anything else as it is."""
    if isinstance(value, list | tuple):
        return type(value)(function(each) for each in value)
    return value


def flat(value: Any) -> list[Any]:
    """What an argument or result consists of: itself, or what its lists and tuples have, in their order."""
    if isinstance(value, list | tuple):
        return [part for each in value for part in flat(each)]
    return [value]


def tensors_in(value: Any) -> list[torch.Tensor]:
    return [part for part in flat(value) if isinstance(part, torch.Tensor)]
