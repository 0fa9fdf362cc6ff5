"""Conversion, copying and addresses of fake tensors as of real ones.

Real parameters stay when ``module.to(...)`` or ``.half()`` converts them.  PyTorch replaces the parameters of fake
modules instead.  Since 2.13 `Module._apply` swaps each with the converted one, which `swap_tensors` refuses because
`FakeTensorMode` remembers every tensor by a weak reference; earlier versions make new parameters, so that tied weights
come apart and optimizers made earlier keep the old ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from carpool.estimate.rehearsal.values import adopt

_data_ptr = torch.UntypedStorage.data_ptr
_DATA: Any = vars(torch._C.TensorBase)["data"]


def convert(module: nn.Module, function: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
    """Do what `Module._apply` does with real tensors: keep the parameters and replace their data."""
    if recurse:
        for child in module.children():
            child._apply(function)  # recurrent layers have an `_apply` of their own
    for name, parameter in module._parameters.items():
        if parameter is not None:
            module._parameters[name] = _converted(parameter, function)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = function(buffer)
    return module


def _converted(parameter: nn.Parameter, function: Callable[[torch.Tensor], torch.Tensor]) -> nn.Parameter:
    with torch.no_grad():
        data, gradient = function(parameter), parameter.grad
    if torch._has_compatible_shallow_copy_type(parameter, data):
        parameter.data = data
    else:  # from or to the meta device
        parameter = nn.Parameter(data, parameter.requires_grad)
    if gradient is not None:
        with torch.no_grad():
            parameter.grad = function(gradient)
    return parameter


def _set_data(tensor: FakeTensor, data: torch.Tensor) -> None:
    """Set ``data`` with device and numbers, which PyTorch does not copy: a fake tensor has them in Python only."""
    _DATA.__set__(tensor, data)
    if isinstance(data, FakeTensor):
        tensor.fake_device = data.fake_device
        adopt(tensor, data)


#: In place of ``FakeTensor.data``.
DATA = property(_DATA.__get__, _set_data)


def copied(tensor: FakeTensor, memo: dict[int, Any]) -> torch.Tensor:
    """Replace ``FakeTensor.__deepcopy__``: PyTorch would copy bytes."""
    if id(tensor) not in memo:
        clone = tensor.detach().clone()
        is_parameter = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(clone, tensor.requires_grad) if is_parameter else clone
        memo[id(tensor)].requires_grad_(tensor.requires_grad)
        memo[id(tensor)].grad = copy.deepcopy(tensor.grad, memo)
    result: torch.Tensor = memo[id(tensor)]
    return result


def address(storage: torch.UntypedStorage) -> int:
    """Replace ``UntypedStorage.data_ptr``, by which shared memory is found: PyTorch's 0 is the same for all tensors."""
    return int(storage._cdata) if storage.device.type == "meta" else _data_ptr(storage)
