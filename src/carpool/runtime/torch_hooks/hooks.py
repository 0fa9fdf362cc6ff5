"""Tells libcarpool where the script's iterations are, by hooks that PyTorch offers for this.

Two global hooks around optimizer steps stay for the life of the process.  A third one, on forward passes, is there only
until the first of them: a hook on modules costs a microsecond per module call and would disturb ``torch.compile``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from .. import native
from . import memory_pools, oom_report
from .first_forward import FirstForward
from .live_blocks import hand_over
from .optimizer_pool import StatePool
from .optimizers import Optimizers

AfterImport = Callable[[str, Callable[[], None]], None]


def install(fd: int, after_import: AfterImport) -> bool:
    """Attach this process to its daemon over the channel ``fd``; return True if it is attached, or may be later.

    Called right after torch has been imported, and waits until the daemon answers.  While another process of the job is
    attached, this process asks again when it is about to use its device.  Returns False without a message if libcarpool
    is not preloaded, or the daemon refused for good.  Raises RuntimeError if attaching failed.
    """
    library = native.preloaded()
    if library is None:
        return False
    return _installed(library, library.attach(fd), after_import)


def install_joining(path: str, message: bytes, cuda: bool, after_import: AfterImport) -> bool:
    """Let this process join when it is about to use its device: over the socket ``path``, with ``message``.

    ``cuda``: the device is a GPU.  Returns and raises what `install` does.
    """
    library = native.preloaded()
    if library is None:
        return False
    return _installed(library, library.join(os.fsencode(path), message, cuda), after_import)


def _installed(library: native.Native, answer: int, after_import: AfterImport) -> bool:
    """Act on libcarpool's ``answer``; return whether the process is attached, or may be later."""
    if answer == native.REFUSED:
        return False
    if answer not in (native.ATTACHED, native.LATER):
        raise RuntimeError(f"cannot attach to the daemon: {library.error() or 'no reason given'}")
    if "CARPOOL_JOB" not in os.environ or os.environ.get("CARPOOL_JOB_PID") == str(os.getpid()):
        oom_report.listen(library)
    _watch(library, after_import)
    return True


def install_for_forks(after_import: AfterImport) -> None:
    """Install the hooks in a process without a seat whose forks may come to use the device."""
    library = native.preloaded()
    if library is not None:
        library.watch_forks()
        _watch(library, after_import)


def _watch(library: native.Native, after_import: AfterImport) -> None:
    """Install the hooks.  Errors from here on cost turns their boundaries, never results."""
    try:
        first_forward = FirstForward(library.begin_iterations)
        after_import("torch._dynamo.callback", first_forward.watch_compiler)
        _watch_steps(Optimizers(), library, first_forward)
        memory_pools.watch(library.pool_scope)
    except (ImportError, AttributeError) as error:
        _warn(f"this PyTorch lacks the hooks that Carpool uses ({error}); turns change hands by force only")


def _watch_steps(optimizers: Optimizers, library: native.Native, first_forward: FirstForward) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    begin, end = library.step_begin, library.step_end
    state_pool = StatePool()

    def before(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        state_pool.leave()
        number, creates_state = optimizers.step_begins(optimizer, args, kwargs)
        if creates_state:
            begin(number, creates_state)
            state_pool.enter(optimizer)

    def after(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        number, created_state = optimizers.step_ends(optimizer)
        if created_state:
            state_pool.leave()
        if end(number, created_state):
            hand_over(library)
        if first_forward.pending:  # a loop without modules has also completed its first iteration
            first_forward.happened()

    for hook in (before, after):
        # As torch.compiler.disable() does: the compiler calls the hooks without compiling them.
        hook._torchdynamo_disable = True  # type: ignore[attr-defined]
    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def _warn(text: str) -> None:
    print(f"carpool: warning: {text}", file=sys.stderr)
