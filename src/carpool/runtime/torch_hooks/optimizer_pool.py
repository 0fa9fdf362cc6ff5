"""A place of its own for what optimizers make in their first step: momentum and the like, which lives on.

PyTorch's caching allocator would cut it out of segments that iterations have used before, and these are ephemeral.  In
a pool of its own it needs new segments, which are persistent, because libcarpool hears that such a step has begun.

Not yet run on a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from typing import Any


class StatePool:
    """Around first steps on CUDA; elsewhere nothing happens.  Nothing here raises."""

    def __init__(self) -> None:
        self._pool: Any = None
        self._usable = True
        self._here = threading.local()  # pools are entered by thread

    def enter(self, optimizer: Any) -> None:
        """Before a step of ``optimizer`` that makes state.  Never during a capture, which has a pool of its own."""
        try:
            device = _device(optimizer) if self._usable else None
            if device is not None:
                self._enter(device)
        except Exception:  # noqa: BLE001 - the user's program goes on in any case
            self._usable = False  # with another back end for allocations, for example, there are no pools

    def leave(self) -> None:
        """After it, or before the next step if this one has failed."""
        scope = getattr(self._here, "scope", None)
        if scope is not None:
            self._here.scope = None
            with contextlib.suppress(Exception):
                scope.__exit__(None, None, None)

    def _enter(self, device: Any) -> None:
        import torch

        if torch.cuda.is_current_stream_capturing():
            return
        if self._pool is not None:
            with contextlib.suppress(RuntimeError):  # PyTorch 2.6 does not let a pool be used twice
                self._use(device)
                return
        self._pool = _eternal(torch.cuda.MemPool())
        self._use(device)

    def _use(self, device: Any) -> None:
        import torch

        scope = torch.cuda.use_mem_pool(self._pool, device)
        scope.__enter__()
        self._here.scope = scope


def _device(optimizer: Any) -> Any:
    """Where its parameters are; None if none of them is on a GPU."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.is_cuda:
                return parameter.device
    return None


def _eternal(pool: Any) -> Any:
    """The end of the process must not destroy a pool that is in use."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
    return pool
