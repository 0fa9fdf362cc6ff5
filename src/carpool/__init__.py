"""Carpool: many deep-learning jobs share the accelerators of one server.

Scripts need none of this.  Two things a script may say if it wants to: `iteration` (this block is one iteration, for
loops without a ``torch.optim`` optimizer) and `progress` (so much is done).  Both do nothing outside a Carpool job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from carpool.runtime.torch_hooks.progress import iteration as iteration
    from carpool.runtime.torch_hooks.progress import progress as progress

__version__ = "0.1.0"
__all__ = ["__version__", "iteration", "progress"]


def __getattr__(name: str) -> object:
    """Load the API when it is used: the daemon and the command line need none of it."""
    if name not in ("iteration", "progress"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from carpool.runtime.torch_hooks import progress as api

    # Loading the module `progress` does not hide these names: the module belongs to another package.
    globals()["iteration"], globals()["progress"] = api.iteration, api.progress
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
