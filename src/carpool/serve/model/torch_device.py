"""What a model's tensors are on the device that its weights are on: a host device, or a GPU.

The GPU's part: not yet run on a GPU.
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

from carpool.protocol.lacking import lacks
from carpool.serve.model.cold_mode import Following, is_opaque
from carpool.serve.model.native_groups import Groups


class NoGpu(Exception):
    """This process is a job on a GPU and cannot use it, or not any more.  The text says why."""


#: The variable by which a job knows that it is on a GPU (`carpool.runtime.launch`).
_ON_GPU = "CARPOOL_CUDA_DEVICE"


class OnDevice(Protocol):
    """``device``: what PyTorch calls it."""

    device: torch.device

    def memory(self, address: int, size: int) -> Tensor:
        """These bytes of the device, as they are, as a tensor of uint8.  They must stay where they are."""

    def computing(self, module: nn.Module, groups: Groups) -> AbstractContextManager[object]:
        """What the module computes inside sees its weights only, though some of them are on their way.

        Raises Stopped if nobody brings them.
        """

    def check(self) -> None:
        """After a failure: can anything still be computed there?  Raises NoGpu."""


class OnHost:
    """Computes on the processors, over memory of the host that this process has mapped."""

    device = torch.device("cpu")

    def memory(self, address: int, size: int) -> Tensor:
        return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=torch.uint8)

    def computing(self, module: nn.Module, groups: Groups) -> AbstractContextManager[object]:
        """The trap waits."""
        return nullcontext()

    def check(self) -> None:
        """What a model's code does wrong does not outlast it."""


class OnGpu:
    """Computes on the job's GPU, over memory that libcarpool has mapped there."""

    device = torch.device("cuda", 0)  # a job sees no other one

    def memory(self, address: int, size: int) -> Tensor:
        """Needs NumPy, as all that PyTorch takes by this interface."""
        return torch.as_tensor(_Bytes(address, size), device=self.device)

    def computing(self, module: nn.Module, groups: Groups) -> AbstractContextManager[object]:
        if groups.there == groups.count:
            return nullcontext()
        if is_opaque(module):
            groups.wait()
            return nullcontext()
        return Following(groups, self.stream)

    def check(self) -> None:
        """A kernel's failed assertion or stray access spoils the context: all that follows fails, whatever it is."""
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            raise NoGpu(f"nothing can be computed any more in this process: {error}") from None

    def stream(self) -> int:
        """The handle of the one that this thread submits to."""
        return int(torch.cuda.current_stream().cuda_stream)


class _Bytes:
    """Device memory, as the CUDA array interface describes it (version 3, of Numba's documentation)."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


def where(address: int | None) -> OnDevice:
    """``address``: of the weights on a GPU; None: they are on a host device."""
    return OnHost() if address is None else OnGpu()


def begin() -> None:
    """If this process is a job on a GPU, make its context: libcarpool needs one to map weights.

    What PyTorch lacks for computing there is found now, and not in a request.  Raises NoGpu.
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
