"""The protocol's tensors as PyTorch tensors, and back.  Each way is one copy: to the device, and off it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from carpool.serve.oip.errors import ModelFailed, WrongInput
from carpool.serve.oip.values import Tensor

CPU = torch.device("cpu")
DTYPES = {
    "BOOL": torch.bool,
    "UINT8": torch.uint8,
    "UINT16": torch.uint16,
    "UINT32": torch.uint32,
    "UINT64": torch.uint64,
    "INT8": torch.int8,
    "INT16": torch.int16,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "FP16": torch.float16,
    "FP32": torch.float32,
    "FP64": torch.float64,
    "BF16": torch.bfloat16,
}
_DATATYPES = {dtype: name for name, dtype in DTYPES.items()}


def datatype(name: str, dtype: torch.dtype) -> str:
    """Return the protocol's name of a dtype.  Raises ModelFailed; ``name``: of the tensor."""
    found = _DATATYPES.get(dtype)
    if found is None:
        raise ModelFailed(f"{name!r} is of {dtype}, which the protocol has no name for; known: {', '.join(DTYPES)}")
    return found


def joined(requests: Sequence[Sequence[Tensor]], device: torch.device = CPU) -> dict[str, torch.Tensor]:
    """Return the inputs of a batch by name, on the device, concatenated in their first dimension.

    Raises WrongInput unless the requests have the same inputs, which agree in all other dimensions.
    """
    if not requests:
        raise WrongInput("a batch without requests")
    columns: dict[str, list[Tensor]] = {tensor.name: [] for tensor in requests[0]}
    for request in requests:
        if [tensor.name for tensor in request] != list(columns):
            raise WrongInput("the requests of a batch have different inputs")
        for tensor in request:
            columns[tensor.name].append(tensor)
    return {name: _on_device(name, [_view(part) for part in parts], device) for name, parts in columns.items()}


def _view(tensor: Tensor) -> torch.Tensor:
    """Return a tensor in the memory of the message."""
    dtype = DTYPES.get(tensor.datatype)
    if dtype is None:
        raise WrongInput(f"input {tensor.name!r} is of {tensor.datatype}, which PyTorch has no tensors of")
    if not len(tensor.data):
        return torch.empty(tensor.shape, dtype=dtype)
    return torch.frombuffer(tensor.data, dtype=dtype).reshape(tensor.shape)


def _on_device(name: str, parts: list[torch.Tensor], device: torch.device) -> torch.Tensor:
    if len(parts) == 1:
        return parts[0].to(device, copy=True)
    first = parts[0]
    if any(part.dtype != first.dtype or part.shape[1:] != first.shape[1:] or not part.dim() for part in parts):
        raise WrongInput(f"input {name!r} is not of the same kind in all requests of a batch")
    return torch.cat(parts).to(device)


def named(answer: Any) -> dict[str, torch.Tensor]:
    """Return outputs by name: a tensor is "output", a tuple or list "output0" and so on, a dict has its own names.

    Raises ModelFailed.
    """
    if isinstance(answer, torch.Tensor):
        found: dict[str, Any] = {"output": answer}
    elif isinstance(answer, tuple | list):
        found = {f"output{place}": value for place, value in enumerate(answer)}
    elif isinstance(answer, Mapping):
        found = dict(answer)
    else:
        raise ModelFailed(
            f"the model returns a {type(answer).__name__}: it must be a tensor, a tuple or a dict of them"
        )
    for name, value in found.items():
        if not (isinstance(name, str) and isinstance(value, torch.Tensor)):
            kind = type(value).__name__
            raise ModelFailed(f"the model's output {name!r} is a {kind}: it must be a tensor with a name")
        if value.layout is not torch.strided:
            raise ModelFailed(f"the model's output {name!r} is {value.layout}: the protocol knows dense tensors only")
    if not found:
        raise ModelFailed("the model returns no tensors")
    return found


def split(outputs: Mapping[str, torch.Tensor], rows: Sequence[int]) -> list[list[Tensor]]:
    """Return the outputs of each request, off the device; ``rows``: how many each has in the first dimension.

    A single request gets all outputs whole.  Raises ModelFailed.
    """
    outputs = {name: value.cpu() for name, value in outputs.items()}  # waits for the computation
    if len(rows) == 1:
        return [[_sent(name, value) for name, value in outputs.items()]]
    for name, value in outputs.items():
        if not value.dim() or value.shape[0] != sum(rows):
            shape = list(value.shape)
            raise ModelFailed(
                f"output {name!r} has shape {shape} for {sum(rows)} rows: it cannot be divided by requests"
            )
    parts = {name: value.contiguous().split(list(rows)) for name, value in outputs.items()}
    return [[_sent(name, part[place]) for name, part in parts.items()] for place in range(len(rows))]


def _sent(name: str, value: torch.Tensor) -> Tensor:
    kind = datatype(name, value.dtype)
    value = value.resolve_conj().resolve_neg().contiguous()
    return Tensor(name, kind, tuple(value.shape), ctypes.string_at(value.data_ptr(), value.nbytes))
