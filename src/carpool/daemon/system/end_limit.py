"""A limit for the daemon's own end: whatever hangs then, the kernel ends the process, and jobs go on."""

from __future__ import annotations

import faulthandler
import signal
from contextlib import suppress

_armed = False


def limit_end(seconds: float) -> None:
    """From now on; a further call changes nothing.  For the main thread.

    When the time is over the kernel ends the process, whatever its threads do or wait for; standard error gets, by
    code that needs no memory, where each of them was.
    """
    global _armed
    if _armed:
        return
    _armed = True
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with suppress(RuntimeError, OSError, ValueError):  # no standard error, or no memory: it ends all the same
        faulthandler.register(signal.SIGALRM, file=2, all_threads=True, chain=True)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def end_is_limited() -> bool:
    """Whether the timer of this process is for its end."""
    return _armed
