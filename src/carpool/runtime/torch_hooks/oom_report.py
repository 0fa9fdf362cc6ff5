"""Tells the daemon whether the script ends because of an unhandled out-of-memory error.

An exception that the script has not caught is in ``sys.last_value`` when the interpreter ends: Python sets it before it
calls ``sys.excepthook``.  So no hook has to be replaced, and hooks that scripts install (rich, wandb) change nothing
here.
"""

from __future__ import annotations

import atexit
import os
import sys

from .. import native

#: ``CP_OUT_OF_*`` of src/native/abi/seat.h.
DEVICE, HEAP, OTHER = 1, 2, 3
_REFUSED_HOST = "DefaultCPUAllocator: can't allocate memory"
_REFUSED_CUDA = "CUDA error: out of memory"


def listen(library: native.Native) -> None:
    """Report the error when this process ends; called in the job's main process, whose end is the end of the job."""
    process = os.getpid()

    def about_to_end() -> None:
        if os.getpid() == process:
            library.out_of_memory(lacking(_uncaught()))

    atexit.register(about_to_end)


def _uncaught() -> BaseException | None:
    """Return the exception that ends the process; None if interactive: such interpreters print exceptions and go on."""
    return None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)


def lacking(error: BaseException | None) -> int:
    """Return `DEVICE` or `HEAP` for an exception that says that memory ran out, else `OTHER`."""
    on_gpu = bool(os.environ.get("CARPOOL_CUDA_DEVICE"))
    torch = sys.modules.get("torch")
    names = [getattr(torch, "OutOfMemoryError", None), getattr(getattr(torch, "cuda", None), "OutOfMemoryError", None)]
    if isinstance(error, tuple(name for name in names if isinstance(name, type))):
        return DEVICE
    if isinstance(error, MemoryError):
        return OTHER if on_gpu else HEAP  # more device memory does not help
    if not isinstance(error, RuntimeError):
        return OTHER
    # On the host device PyTorch's tensors for the CPU are device memory.
    return DEVICE if (_REFUSED_CUDA if on_gpu else _REFUSED_HOST) in str(error) else OTHER
