"""A model's tensors on the device of its weights: a host device, or a GPU.

The GPU's part is not yet run on a GPU.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn

from carpool.protocol.missing_package import lacks
from carpool.serve.model.cold_mode import Following
from carpool.serve.model.module_calls import is_opaque
from carpool.serve.model.native_groups import Groups


class NoGpu(Exception):
    """This process is a job on a GPU and cannot use it.  The text gives the reason."""


#: The variable that tells a job that it is on a GPU (`carpool.runtime.launch`).
_ON_GPU = "CARPOOL_CUDA_DEVICE"


class OnDevice(Protocol):
    """``device``: PyTorch's name of the device."""

    device: torch.device

    def memory(self, address: int, size: int) -> Tensor:
        """Return these bytes of the device as a tensor of uint8, without a copy.  They must stay where they are."""

    def computing(self, module: nn.Module, groups: Groups) -> AbstractContextManager[object]:
        """Return a context in which the module sees its weights only, even while some are still being copied.

        Raises CopyStopped if copying has been stopped.
        """

    def check(self) -> None:
        """Check after a failure that the device can still compute.  Raises NoGpu."""


class OnHost:
    """Computes on the processors, over memory of the host that this process has mapped."""

    device = torch.device("cpu")

    def memory(self, address: int, size: int) -> Tensor:
        return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=torch.uint8)

    def computing(self, module: nn.Module, groups: Groups) -> AbstractContextManager[object]:
        """Return an empty context: the trap waits for missing weights."""
        return nullcontext()

    def check(self) -> None:
        """Do nothing: errors of a model's code have no lasting effect on the host."""


class OnGpu:
    """Computes on the job's GPU, over memory that libcarpool has mapped there."""

    device = torch.device("cuda", 0)  # a job sees no other GPU

    def memory(self, address: int, size: int) -> Tensor:
        """Return these bytes as a tensor.  Needs NumPy, as PyTorch does for all arrays of this interface."""
        return torch.as_tensor(_Bytes(address, size), device=self.device)

    def computing(self, module: nn.Module, groups: Groups) -> AbstractContextManager[object]:
        if groups.there == groups.count:
            return nullcontext()
        if is_opaque(module):
            groups.wait()
            return nullcontext()
        return Following(groups, self.stream)

    def check(self) -> None:
        """Check the context: a kernel's failed assertion or stray access spoils it, and all later work fails."""
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            raise NoGpu(f"nothing can be computed any more in this process: {error}") from None

    def stream(self) -> int:
        """Return the handle of the stream that this thread submits to."""
        return int(torch.cuda.current_stream().cuda_stream)


class _Bytes:
    """Device memory, as the CUDA array interface describes it (version 3, of Numba's documentation)."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


def where(address: int | None) -> OnDevice:
    """Return the device of the weights.  ``address``: of the weights on a GPU; None: they are on a host device."""
    return OnHost() if address is None else OnGpu()


def begin() -> None:
    """If this process is a job on a GPU, create its context: libcarpool needs one to map weights.

    A part of PyTorch that is missing for computing there is found now, and not in a request.  Raises NoGpu.
    """
    if not os.environ.get(_ON_GPU):
        return
    if importlib.util.find_spec("numpy") is None:
        raise NoGpu(lacks("numpy", sys.executable))
    try:
        byte = torch.empty(1, dtype=torch.uint8, device=OnGpu.device)
        OnGpu().memory(byte.data_ptr(), 1)
    except (RuntimeError, AssertionError, ValueError, TypeError) as error:
        raise NoGpu(f"this interpreter's PyTorch ({torch.__version__}) cannot use the GPU: {error}") from None
