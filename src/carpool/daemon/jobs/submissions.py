"""Submissions by user: bytes and number of jobs, submission rate, and the ids of refused submissions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

import msgspec

from carpool.core.model import JobId
from carpool.daemon.system.allowance import TokenBucket
from carpool.daemon.system.peer import person_of


def size_of(spec: msgspec.Struct) -> int:
    """Return the bytes that a submission or the registration of a model takes: command, environment and the rest."""
    return len(msgspec.json.encode(spec))


@dataclass(slots=True)
class _Held:
    jobs: int = 0
    size: int = 0

    def change(self, jobs: int, size: int) -> None:
        self.jobs += jobs
        self.size += size


class JobAmounts:
    """The number of jobs of each person, and their bytes."""

    def __init__(self) -> None:
        self._of_person: dict[int, _Held] = {}
        self._counted: dict[JobId, tuple[int, int]] = {}  # the person, and bytes

    def of(self, uid: int) -> tuple[int, int]:
        """Return the user's number of jobs and their total bytes."""
        held = self._of_person.get(person_of(uid), _Held())
        return held.jobs, held.size

    def users(self) -> list[int]:
        """List the persons who have any jobs."""
        return list(self._of_person)

    def add(self, job: JobId, uid: int, size: int) -> None:
        """Count a job of a user.  ``size`` in bytes."""
        person = person_of(uid)
        self._counted[job] = person, size
        self._of_person.setdefault(person, _Held()).change(1, size)

    def remove(self, job: JobId) -> None:
        """Stop counting a job; does nothing if the job is not counted."""
        person, size = self._counted.pop(job, (None, 0))
        if person is None:
            return
        held = self._of_person[person]
        held.change(-1, -size)
        if not held.jobs:
            del self._of_person[person]


class SubmissionRate:
    """A token bucket for each user, full at first: ``at_once`` jobs, replenished at ``per_s``."""

    def __init__(self, at_once: int, per_s: int, clock: Callable[[], float] = monotonic) -> None:
        self.at_once = at_once
        self.per_s = per_s
        self._clock = clock
        self._buckets: dict[int, TokenBucket] = {}  # by person

    def left(self, uid: int) -> int:
        """Return how many jobs the user may submit now."""
        person = person_of(uid)
        if person not in self._buckets:
            self._buckets[person] = TokenBucket(self.at_once, self.per_s, self._clock)
        return int(self._buckets[person].refill())

    def spend(self, uid: int, jobs: int) -> None:
        """Count jobs that the user has submitted, after `left` has allowed them."""
        self._buckets[person_of(uid)].take(jobs)


class BurnedIds:
    """A set of job numbers, stored as runs.  Numbers mostly arrive in order; one that extends a run takes no memory."""

    def __init__(self) -> None:
        self._first: list[JobId] = []  # of each run, ascending
        self._last: list[JobId] = []

    def add(self, number: JobId) -> None:
        """Add a number to the set."""
        place = bisect_right(self._first, number)
        if place and self._last[place - 1] >= number - 1:
            self._last[place - 1] = max(number, self._last[place - 1])
        else:
            self._first.insert(place, number)
            self._last.insert(place, number)

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        place = bisect_right(self._first, number)
        return place > 0 and number <= self._last[place - 1]
