"""Points at which a model's computation can be left: the calls of its modules, where it has any."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

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
