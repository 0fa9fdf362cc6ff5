"""Stands in for PyTorch in programs that compute by the driver alone: its import is what makes them Carpool's jobs.

The real one takes two seconds to import.  Here is what `carpool.runtime.torch_hooks` asks it for, as a PyTorch without
CUDA has it: hooks that nobody calls, and a device that nobody has begun to use.  `make test-all` has the real one
everywhere, and so have always the tests that use the fixture ``real_torch``.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace


class OutOfMemoryError(RuntimeError):
    """As on a device."""


def _hook(_: Callable[..., object]) -> SimpleNamespace:
    return SimpleNamespace(remove=lambda: None)


def _module(name: str, **content: object) -> None:
    module = ModuleType(name)
    vars(module).update(content)
    sys.modules[name] = module


ctypes.CDLL(os.environ["STAND_IN_C10"])  # libcarpool attaches to a process that has PyTorch's libraries
version = SimpleNamespace(cuda=None)
cuda = SimpleNamespace(is_initialized=lambda: False, OutOfMemoryError=OutOfMemoryError)
modules = SimpleNamespace(register_module_forward_pre_hook=_hook)
_module("torch.nn.modules", module=modules)
_module("torch.optim.optimizer", register_optimizer_step_pre_hook=_hook, register_optimizer_step_post_hook=_hook)
