"""A limit for calls of code that is not ours: policies of users, which the daemon's loop has to wait for."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Protocol, TypeVar

from carpool.core.policies.guard import PolicyTimeout

T = TypeVar("T")
#: A policy answers in microseconds; on a machine without processor time for the daemon it may be a hundred thousand.
LIMIT_S = 1.0
#: Until it is interrupted again, where it has caught the first interruption.
AGAIN_S = 0.05


class CallNotes(Protocol):
    """Who is told of each call (`carpool.daemon.config.policy_calls`)."""

    def begin(self) -> None:
        """Before the call."""
        ...

    def end(self) -> None:
        """The call has come back, or has been interrupted."""
        ...


class AlarmLimit:
    """Interrupts calls by SIGALRM, which ends loops, sleeps and regular expressions alike.  For the main thread.

    Code in C that never comes back to the interpreter is not interrupted: that is for ``calls``, where there are any.
    """

    def __init__(self, limit_s: float = LIMIT_S, calls: CallNotes | None = None) -> None:
        self.limit_s = limit_s
        self._calls = calls
        signal.signal(signal.SIGALRM, _alarm)

    def __call__(self, ask: Callable[[], T]) -> T:
        """Its answer.  Raises PolicyTimeout."""
        if self._calls is not None:
            self._calls.begin()
        signal.setitimer(signal.ITIMER_REAL, self.limit_s, AGAIN_S)
        try:
            return ask()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if self._calls is not None:
                self._calls.end()


def _alarm(_number: int, frame: FrameType | None) -> None:
    """Only what has been called is interrupted, not `AlarmLimit` around it, nor what comes after."""
    inside = frame
    while inside is not None and inside.f_code is not AlarmLimit.__call__.__code__:
        inside = inside.f_back
    if inside is not None and inside is not frame:
        raise PolicyTimeout(f"took longer than {inside.f_locals['self'].limit_s:g} s")
