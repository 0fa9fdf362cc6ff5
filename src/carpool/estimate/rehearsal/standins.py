"""Stand-ins for functions that fail on fake tensors, or that must not run while a script is rehearsed.

Conversion, copying and addresses of fake tensors as of real ones.

Real parameters stay when ``module.to(...)`` or ``.half()`` converts them.  PyTorch replaces the parameters of fake
modules instead.  Since 2.13 `Module._apply` swaps each with the converted one, which `swap_tensors` refuses because
`FakeTensorMode` remembers every tensor by a weak reference; earlier versions make new parameters, so that tied weights
come apart and optimizers made earlier keep the old ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils.data import DataLoader

from carpool.estimate.rehearsal import standins
from carpool.estimate.rehearsal.checkpoints import Checkpoints
from carpool.estimate.rehearsal.values import adopt, in_words, plain, presume

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


_ALONE = {"num_workers": 0, "persistent_workers": False, "prefetch_factor": None, "timeout": 0}


@contextmanager
def stand_ins() -> Iterator[None]:
    """Replace functions that a rehearsed script must not call by stand-ins, while the context lasts.

    Nothing is saved to files, checkpoints are loaded from memory, and data loaders start no processes.
    """
    checkpoints = Checkpoints()
    with ExitStack() as stack:
        for owner, name, stand_in in (
            *_of_safetensors(checkpoints),
            (DataLoader, "__init__", _in_this_process(DataLoader.__init__)),
            (torch, "save", checkpoints.save),
            (torch, "load", checkpoints.load),
            (torch, "isfinite", _finite(torch.isfinite)),
            (torch.nn.Module, "_apply", standins.convert),
            (FakeTensorMode, "__deepcopy__", lambda self, _memo: self),  # a copied tensor is of the same mode
            (FakeTensor, "__deepcopy__", standins.copied),
            (FakeTensor, "data", standins.DATA),
            (torch.UntypedStorage, "data_ptr", standins.address),
            (FakeTensor, "isfinite", _finite(torch.Tensor.isfinite)),
            (FakeTensor, "tolist", lambda self: plain(self).tolist()),
            (FakeTensor, "numpy", lambda self, **_: plain(self).numpy()),
            (FakeTensor, "__array__", lambda self, *args, **_: plain(self).numpy().__array__(*args)),
            (FakeTensor, "__format__", in_words),
        ):
            stack.enter_context(patch.object(owner, name, stand_in, create=True))
        yield


def _of_safetensors(checkpoints: Checkpoints) -> list[tuple[Any, str, Any]]:
    """Return stand-ins for functions of safetensors, which read a tensor's bytes at its address; none if missing."""
    with suppress(ImportError):
        import safetensors.torch as library

        load = library.load_file
        return [
            (library, "save_file", lambda tensors, filename, metadata=None: checkpoints.save(tensors, filename)),
            (library, "load_file", lambda filename, device="cpu": checkpoints.load_by(load, filename, device)),
        ]
    return []


def _in_this_process(make: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **{**kwargs, **{name: value for name, value in _ALONE.items() if name in kwargs}})

    return init


def _finite(check: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return an `isfinite` for which unknown numbers are finite: scripts end where a loss is not finite."""

    def isfinite(*args: Any, **kwargs: Any) -> torch.Tensor:
        result = check(*args, **kwargs)
        presume(result, True)
        return result

    return isfinite
