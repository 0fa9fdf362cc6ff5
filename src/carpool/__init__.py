"""Carpool: many deep-learning jobs share the accelerators of one server.

Scripts need none of this.  Two optional calls inform Carpool: `iteration` (this block is one iteration, for loops
without a ``torch.optim`` optimizer) and `progress` (iterations done so far).  Both do nothing outside a Carpool job.

Programs submit jobs with `submit` (a command or a function) and `map` (a function, for each of many values); a
submitted job is a `Job`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from carpool.runtime.torch_hooks.progress import iteration as iteration
    from carpool.runtime.torch_hooks.progress import progress as progress
    from carpool.tasks.handle import JobFailed as JobFailed
    from carpool.tasks.handle import SubmittedJob as Job
    from carpool.tasks.submitting import CannotSubmit as CannotSubmit
    from carpool.tasks.submitting import map as map  # noqa: A004 - what it is called
    from carpool.tasks.submitting import submit as submit

__version__ = "0.1.0"
__all__ = ["CannotSubmit", "Job", "JobFailed", "__version__", "iteration", "map", "progress", "submit"]


def __getattr__(name: str) -> object:
    """Load the API on first use: the daemon and the command line need none of it, and jobs load only what they use."""
    if name in ("iteration", "progress"):
        from carpool.runtime.torch_hooks import progress as api

        # Loading the module `progress` does not hide these names: the module belongs to another package.
        globals().update(iteration=api.iteration, progress=api.progress)
    elif name in __all__:
        from carpool.tasks import handle, submitting

        globals().update(CannotSubmit=submitting.CannotSubmit, Job=handle.SubmittedJob, JobFailed=handle.JobFailed)
        globals().update(map=submitting.map, submit=submitting.submit)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
