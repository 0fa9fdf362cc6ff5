"""Limits on how much the daemon reads from one user: over the rate, messages wait or their sender is disconnected.

The usual case costs a counter and a comparison: the clock is read only when an allowance is used up.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from carpool.daemon.system.peer import person_of

#: An unused allowance grows until it covers this time at the full rate: a job that starts sends much at once.
BURST_S = 10.0
#: The shortest time for which nothing is read from a user who is over the rate.
PAUSE_S = 0.05


class TokenBucket:
    """Tokens for ``at_once`` uses, all there at first, and replenished at ``per_s``."""

    def __init__(self, at_once: float, per_s: int, clock: Callable[[], float] = monotonic) -> None:
        self.at_once = at_once
        self.per_s = per_s
        self.left = at_once
        self._clock = clock
        self._since = clock()

    def refill(self) -> float:
        """Add the tokens of the time since the last call; return how many are left."""
        now = self._clock()
        self.left = min(self.at_once, self.left + (now - self._since) * self.per_s)
        self._since = now
        return self.left

    def take(self, count: int) -> float:
        """Take tokens; return how many are left, a negative number if there were too few."""
        self.left -= count
        return self.left

    def put_back(self, count: int) -> None:
        """Put tokens back that were taken and not used."""
        self.left += count


class Allowance:
    """One user's allowance: ``per_s`` messages a second, and `BURST_S` times as many at once."""

    def __init__(self, per_s: int, clock: Callable[[], float] = monotonic) -> None:
        self._tokens = TokenBucket(per_s * BURST_S, per_s, clock)
        self._over = False

    def spend(self) -> bool:
        """Count one message to be read; return False if it may not be read unless `pause_s` returns 0."""
        return self._tokens.take(1) >= 0

    def pause_s(self) -> float:
        """After `spend` has returned False: return 0 if the allowance suffices by now, or how long to read nothing."""
        tokens = self._tokens
        tokens.put_back(1)  # the message has not been read
        left = tokens.refill()
        self._over = self._over and left - 1 < tokens.at_once / 2
        if left < 1:
            return max(PAUSE_S, -left / tokens.per_s)
        tokens.take(1)
        return 0.0

    def newly_over(self) -> bool:
        """Return whether to report that the user is over the rate: once, until half of the allowance is back."""
        was_over, self._over = self._over, True
        return not was_over


class Allowances:
    """The allowances of all users who have sent something."""

    def __init__(self, per_s: int) -> None:
        self.per_s = per_s
        self._of: dict[int, Allowance] = {}

    def of(self, uid: int) -> Allowance:
        """Return the user's allowance; all connections of one person share it."""
        person = person_of(uid)
        if person not in self._of:
            self._of[person] = Allowance(self.per_s)
        return self._of[person]
