"""The end of a process: threads of PyTorch's backward pass have to be out of Python before the interpreter goes.

Such a thread tells whoever waits for the pass first, and comes out of the operators, which are Python's here, after
that.  A thread that asks for the interpreter's lock when there is no interpreter any more is ended by it, through
frames of C++ that cannot be left so: the process is aborted ("terminate called without an active exception").
"""

from __future__ import annotations

import time
from pathlib import Path

#: How PyTorch names these threads.
NAME = "pt_autograd"
LOOK_S = 0.001
#: So many looks in a row have to find all of them waiting, and after so many looks a thread is stuck elsewhere.
QUIET, MOST = 3, 10_000


def wait_for_backward_passes() -> None:
    """Until no thread of them runs; the interpreter's lock is free for them meanwhile."""
    quiet = 0
    for _ in range(MOST):
        time.sleep(LOOK_S)
        quiet = 0 if any(map(_runs, Path("/proc/self/task").iterdir())) else quiet + 1
        if quiet == QUIET:
            return


def _runs(thread: Path) -> bool:
    try:
        name, state = (thread / "comm").read_text(), (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # it has ended
        return False
    return name.startswith(NAME) and state != "S"
