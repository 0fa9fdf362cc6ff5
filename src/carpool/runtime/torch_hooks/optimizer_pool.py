"""A separate pool for the state that optimizers create in their first step, such as momentum, which is persistent.

PyTorch's caching allocator would cut this state out of segments that iterations have used before, which are ephemeral.
A pool of its own needs new segments, which are persistent because libcarpool is told that such a step has begun.

Not yet run on a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from typing import Any


class StatePool:
    """The pool around first steps on CUDA; on other devices it does nothing.  No method raises."""

    def __init__(self) -> None:
        self._pool: Any = None
        self._usable = True
        self._here = threading.local()  # pools are entered per thread

    def enter(self, optimizer: Any) -> None:
        """Enter the pool before a step of ``optimizer`` that creates state.

        Does nothing during a capture, which has a pool of its own.
        """
        try:
            device = _device(optimizer) if self._usable else None
            if device is not None:
                self._enter(device)
        except Exception:  # noqa: BLE001 - the user's program goes on in any case
            self._usable = False  # for example, another allocator back end has no pools

    def leave(self) -> None:
        """Leave the pool after the step, or before the next step if this one has failed."""
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
    """Return the device of the optimizer's parameters; None if none of them is on a GPU."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.is_cuda:
                return parameter.device
    return None


def _eternal(pool: Any) -> Any:
    """Keep the pool alive for ever: the end of the process must not destroy a pool that is in use."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
    return pool
