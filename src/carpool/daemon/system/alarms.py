"""Limits of time by SIGALRM: for the daemon's own end, and for calls of users' policies, which its loop waits for."""

from __future__ import annotations

import faulthandler
import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TypeVar

from carpool.core.policies.registry import PolicyTimeout

_armed = False
T = TypeVar("T")
#: A policy answers in microseconds; where the daemon gets little processor time it may take a hundred thousand.
LIMIT_S = 1.0
#: Time until the next interruption, where the code has caught the first one.
AGAIN_S = 0.05


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


class AlarmLimit:
    """Interrupts calls by SIGALRM, which ends loops, sleeps and regular expressions alike.  For the main thread.

    Code in C that never comes back to the interpreter is not interrupted; only administrators install policies.
    """

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.limit_s = limit_s
        signal.signal(signal.SIGALRM, _alarm)

    def __call__(self, ask: Callable[[], T]) -> T:
        """Return the answer.  Raises PolicyTimeout.  While the daemon ends, only the limit of its end applies."""
        if end_is_limited():
            return ask()
        signal.setitimer(signal.ITIMER_REAL, self.limit_s, AGAIN_S)
        try:
            return ask()
        finally:
            if not end_is_limited():
                signal.setitimer(signal.ITIMER_REAL, 0)


def _alarm(_number: int, frame: FrameType | None) -> None:
    """Interrupt only the code that was called, not `AlarmLimit` around it, nor what comes after."""
    inside = frame
    while inside is not None and inside.f_code is not AlarmLimit.__call__.__code__:
        inside = inside.f_back
    if inside is not None and inside is not frame:
        raise PolicyTimeout(f"took longer than {inside.f_locals['self'].limit_s:g} s")
