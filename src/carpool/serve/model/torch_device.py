"""A model's tensors on the device of its weights: a host device, or a GPU.

The GPU's part is not yet run on a GPU.

Points at which a model's computation can be left: the calls of its modules, where it has any.

Computing on a GPU while weights are still being copied there.

On a host device an access to missing weights waits by itself.  On a GPU nothing waits, so each operation is submitted
after an event of the last group that it needs.  That group follows from the addresses of the operation's tensors, in
whatever order the model uses them.

Not yet run on a GPU.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from carpool.protocol.missing_package import lacks
from carpool.serve.model.native_groups import Groups

#: Least time between two looks: a look is a system call, and a call of a module may take no longer.
LOOK_S = 0.001


@contextmanager
def watched(module: nn.Module, look: Callable[[], None]) -> Iterator[None]:
    """Call ``look`` before calls of modules in this thread, inside the block; an exception from it leaves the module.

    A model that was compiled or scripted cannot be left: it calls no modules, or a hook would have it compiled anew.
    """
    if is_opaque(module):
        yield
        return
    own, next_s = threading.get_ident(), 0.0

    def hook(called: nn.Module, inputs: object) -> None:
        nonlocal next_s
        if threading.get_ident() == own and time.monotonic() >= next_s:
            look()
            next_s = time.monotonic() + LOOK_S

    handle = register_module_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def is_opaque(module: nn.Module) -> bool:
    """Whether any part of the module was compiled or scripted: no mode sees the arguments of such code's kernels."""
    return any(
        isinstance(part, torch.jit.ScriptModule)
        or part._compiled_call_impl is not None  # by Module.compile
        or "_orig_mod" in part._modules  # by torch.compile
        for part in module.modules()
    )


class Following(TorchDispatchMode):  # type: ignore[misc]
    """A mode in which each operation of this thread is submitted after the groups that contain its tensors.

    Work that reaches the GPU in another way, by a kernel's own launch or from another thread, waits for all groups at
    the gate.  ``stream``: the handle of the stream that operations are submitted to.  Operations raise CopyStopped and
    OSError as `Groups.follow` does.
    """

    supports_higher_order_operators = True

    def __init__(self, groups: Groups, stream: Callable[[], int]) -> None:
        super().__init__()
        self._groups = groups
        self._stream = stream
        self._followed: dict[int, int] = {}  # number of groups, by stream

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False; else the first request that finds weights missing would import PyTorch's compiler."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if count := self._needed(func, (*args, *kwargs.values())):
            stream = self._stream()
            if count > self._followed.get(stream, 0):
                self._groups.follow(count, stream)
                self._followed[stream] = count
        self._groups.operation(begins=True)
        try:
            return func(*args, **kwargs)
        finally:
            self._groups.operation(begins=False)

    def __enter__(self) -> Self:
        self._groups.guard(on=True)
        return super().__enter__()  # type: ignore[no-any-return]

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._groups.guard(on=False)

    def _needed(self, func: Any, values: Iterable[Any]) -> int:
        """Return how many groups must be there."""
        if not isinstance(func, OpOverload):  # a higher-order operator: the functions in it use unknown tensors
            return self._groups.count
        return max(map(self._count, _tensors(values)), default=0)

    def _count(self, tensor: Tensor) -> int:
        """Return how many groups a tensor needs; its storage lies in one group, and 0 means it is not a weight."""
        if tensor.layout is not torch.strided:  # made from strided tensors by an operation that followed their groups
            return 0
        bounds = self._groups.bounds
        offset = tensor.untyped_storage().data_ptr() - self._groups.address
        return bisect_right(bounds, offset) if offset < bounds[-1] else 0


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        leaves = tree_leaves(value) if isinstance(value, (list, tuple, dict)) else (value,)  # tree_leaves is slow
        yield from (leaf for leaf in leaves if isinstance(leaf, Tensor))


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
        """Return these bytes of the process as a tensor, without a copy."""
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
        """Return a context in which operations follow the groups of their weights."""
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
    """Create the context of a process that is a job on a GPU: libcarpool needs one to map weights.

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
