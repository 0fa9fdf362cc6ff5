"""How fast each user may submit: a burst of jobs at once, replenished at a steady rate."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from carpool.daemon.system.persons import person_of


class SubmissionRate:
    """A token bucket for each user, full at first: ``at_once`` jobs, replenished at ``per_s``."""

    def __init__(self, at_once: int, per_s: int, clock: Callable[[], float] = monotonic) -> None:
        self.at_once = at_once
        self.per_s = per_s
        self._clock = clock
        self._left: dict[int, tuple[float, float]] = {}  # by person: jobs left, and when that was counted

    def left(self, uid: int) -> int:
        """Return how many jobs the user may submit now."""
        now, person = self._clock(), person_of(uid)
        jobs, since = self._left.get(person, (float(self.at_once), now))
        jobs = min(float(self.at_once), jobs + (now - since) * self.per_s)
        self._left[person] = jobs, now
        return int(jobs)

    def spend(self, uid: int, jobs: int) -> None:
        """Count jobs that the user has submitted, after `left` has allowed them."""
        person = person_of(uid)
        left, since = self._left[person]
        self._left[person] = left - jobs, since
