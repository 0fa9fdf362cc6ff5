"""Which ended jobs are removed.  This module does not touch the disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from carpool.core.model import JobId, Micros, Outcome
from carpool.daemon.config.limits import UserLimits
from carpool.daemon.jobs.table import EndedJob
from carpool.daemon.system.persons import person_of
from carpool.options.requests import dependencies
from carpool.protocol.api import SubmitRequest

#: Jobs that ended within this time stay, so that a client that waited for one's end can still ask about it.
YOUNG: Micros = 3_600_000_000
#: If a user has this many times too many jobs, only those that have just ended are spared.
CROWD = 2
JUST_ENDED: Micros = 2_000_000
#: What rows of jobs in memory may take on average over a user's jobs; a usual row has 800 bytes.
ROW_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long ended jobs are kept, how many of one user, and how many bytes of that user's logs."""

    age_us: Micros
    jobs: int
    log_bytes: int
    row_bytes: int  # in memory
    events: int  # of all users

    def crowded(self, jobs: int, row_bytes: int) -> bool:
        """Return whether a user has so many ended jobs, or such large ones, that they cannot wait for their time."""
        return jobs > CROWD * self.jobs or row_bytes > CROWD * self.row_bytes


def keeping_of(limits: UserLimits) -> Keeping:
    """Return what ``limits.toml`` says."""
    return Keeping(
        int(limits.keep_for), limits.keep_jobs, limits.keep_size, limits.keep_jobs * ROW_BYTES, limits.keep_events
    )


@dataclass(frozen=True, slots=True)
class Needed:
    """Jobs that stay whatever their age: those that others wait for, and the newest, after which job ids continue."""

    awaited: Collection[JobId] = ()
    newest: JobId = 0

    def keeps(self, job: EndedJob, crowded: bool) -> bool:
        """Return whether a job stays.

        If a user has far too many, live jobs that depend on it do not keep a job that has succeeded: they no longer
        need it.
        """
        awaited = job.id in self.awaited and not (crowded and job.outcome is Outcome.SUCCEEDED)
        return awaited or job.id == self.newest


def awaited(live: Iterable[SubmitRequest], candidates: Collection[JobId]) -> set[JobId]:
    """Return the candidates that live jobs wait for.  Slow if these wait for many."""
    asked = frozenset(candidates)
    return {number for spec in live for _, numbers in dependencies(spec) for number in asked.intersection(numbers)}


def removable(
    ended: Collection[EndedJob], sizes: Mapping[JobId, int], stay: Needed, keeping: Keeping, now: Micros
) -> list[EndedJob]:
    """Return jobs that are too old, and the oldest of users with too many; oldest first.  ``sizes``: bytes of logs."""
    found, counts, room, rows = list[EndedJob](), Counter[int](), Counter[int](), Counter[int]()
    crowds = _crowds(ended, keeping)
    for job in sorted(ended, key=lambda job: (job.ended_us, job.id), reverse=True):
        person = person_of(job.owner)
        counts[person] += 1
        room[person] += sizes.get(job.id, 0)
        rows[person] += job.row_bytes
        age = now - job.ended_us
        too_many = counts[person] > keeping.jobs or room[person] > keeping.log_bytes or rows[person] > keeping.row_bytes
        crowded = person in crowds
        if (age > keeping.age_us or too_many) and age > (JUST_ENDED if crowded else YOUNG):
            found += [] if stay.keeps(job, crowded) else [job]
    return found[::-1]


def _crowds(ended: Iterable[EndedJob], keeping: Keeping) -> set[int]:
    """Return the persons who have far too many ended jobs."""
    counts, rows = Counter[int](), Counter[int]()
    for job in ended:
        person = person_of(job.owner)
        counts[person] += 1
        rows[person] += job.row_bytes
    return {person for person in counts if keeping.crowded(counts[person], rows[person])}
