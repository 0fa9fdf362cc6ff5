"""How much the daemon reads from one user: what comes faster has to wait, or its sender is sent away.

The usual case costs a counter and a comparison: the clock is asked only when an allowance is used up.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from carpool.daemon.system.persons import person_of

#: An unused allowance grows until it lasts so long at the full rate: a job that starts says much at once.
BURST_S = 10.0
#: The shortest time for which nothing is read from a user who is over the rate.
PAUSE_S = 0.05


class Allowance:
    """One user's: so many messages a second, and `BURST_S` times as many at once."""

    def __init__(self, per_s: int, clock: Callable[[], float] = monotonic) -> None:
        self._per_s = per_s
        self._clock = clock
        self._most = self._left = per_s * BURST_S
        self._since = clock()
        self._over = False

    def spend(self) -> bool:
        """One message is to be read.  False: it may not be, unless `pause_s` says otherwise."""
        self._left -= 1
        return self._left >= 0

    def pause_s(self) -> float:
        """After `spend` has said no: 0 if enough has come since, or how long nothing is to be read from the user."""
        now = self._clock()
        gained, self._since = (now - self._since) * self._per_s, now
        self._left = min(self._most, self._left + 1 + gained) - 1
        self._over = self._over and self._left < self._most / 2
        if self._left >= 0:
            return 0.0
        self._left += 1  # it has not been read
        return max(PAUSE_S, -self._left / self._per_s)

    def newly_over(self) -> bool:
        """Whether to say that the user is over the rate: once, until half of the allowance was there again."""
        was_over, self._over = self._over, True
        return not was_over


class Allowances:
    """Those of all users who have said something."""

    def __init__(self, per_s: int) -> None:
        self.per_s = per_s
        self._of: dict[int, Allowance] = {}

    def of(self, uid: int) -> Allowance:
        """The user's; all connections of one person share it."""
        person = person_of(uid)
        if person not in self._of:
            self._of[person] = Allowance(self.per_s)
        return self._of[person]
