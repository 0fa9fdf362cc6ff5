"""Detects the first forward pass of a process, and none of those that follow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class FirstForward:
    """Calls ``action`` once, before the first forward pass of any module.

    After that no hook is left in PyTorch.  ``torch.compile`` must not see the hook either: it would warn about it and
    compile it into the model, so the compiler's own announcements count as the first forward pass.
    """

    def __init__(self, action: Callable[[], None]) -> None:
        from torch.nn.modules import module

        self.pending = True
        self._action = action
        self._hook = module.register_module_forward_pre_hook(self._before_forward)
        self._module = module
        # Called by a compiled module (OptimizedModule) right before its forward pass, to warn about global hooks.
        self._has_hooks: Any = getattr(module, "_has_any_global_hook", None)
        self._announced = self._compiled_forward  # one bound method, so that it can be recognised
        if self._has_hooks is not None:
            module._has_any_global_hook = self._announced

    def happened(self) -> None:
        """Note that the first iteration has begun, however that was noticed."""
        pending, self.pending = self.pending, False
        if pending:
            self._hook.remove()
            if getattr(self._module, "_has_any_global_hook", None) is self._announced:
                self._module._has_any_global_hook = self._has_hooks
            self._action()

    def watch_compiler(self) -> None:
        """Listen for compilations once the compiler has been imported: a compiled function begins with one."""
        callbacks = sys.modules["torch._dynamo.callback"]
        handler: Any = getattr(callbacks, "callback_handler", None)
        if self.pending and hasattr(handler, "register_start_callback"):
            handler.register_start_callback(lambda *_: self.happened())

    def _before_forward(self, *_: Any) -> None:
        self.happened()

    def _compiled_forward(self) -> bool:
        self.happened()
        return bool(self._has_hooks())
