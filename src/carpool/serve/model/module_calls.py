"""Places at which a model can be left while it computes: the calls of its modules."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from carpool.serve.model.cold_mode import is_opaque

#: Between two looks: a look is a system call, and a call of a module may take as little.
LOOK_S = 0.001


@contextmanager
def watched(module: nn.Module, look: Callable[[], None]) -> Iterator[None]:
    """``look`` is called before calls of modules inside, in this thread; what it raises leaves the module.

    A model that was compiled or scripted is not left: it calls no modules, or is compiled anew with a hook.
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
