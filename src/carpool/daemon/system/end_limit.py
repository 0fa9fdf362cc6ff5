"""A limit for the daemon's own end: even if something hangs, the kernel ends the process, and jobs go on."""

from __future__ import annotations

import faulthandler
import signal
from contextlib import suppress

_armed = False


def limit_end(seconds: float) -> None:
    """Limit the time until the process ends; a further call changes nothing.  For the main thread.

    When the time is over the kernel ends the process, whatever its threads do or wait for; before that, code that needs
    no memory writes the stack of each thread to standard error.
    """
    global _armed
    if _armed:
        return
    _armed = True
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with suppress(RuntimeError, OSError, ValueError):  # no standard error, or no memory: the process ends all the same
        faulthandler.register(signal.SIGALRM, file=2, all_threads=True, chain=True)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def end_is_limited() -> bool:
    """Return whether the timer of this process is set for its end."""
    return _armed
