"""Which ended jobs are removed.  Nothing here touches the disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from carpool.core.model import JobId, Micros
from carpool.daemon.config.limits import UserLimits
from carpool.daemon.jobs.table import EndedJob, JobRecord

#: Whoever has just waited for a job's end can still ask for the job, however many jobs end.
YOUNG: Micros = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long ended jobs are kept, how many of one user, and how much of that user's logs."""

    age_us: Micros
    jobs: int
    log_bytes: int


def keeping_of(limits: UserLimits) -> Keeping:
    """As ``limits.toml`` says."""
    return Keeping(int(limits.keep_for), limits.keep_jobs, limits.keep_size)


def needed(live: Iterable[JobRecord], ended: Collection[JobId]) -> set[JobId]:
    """Jobs that stay whatever their age: those that others wait for, and the newest, after which numbers go on."""
    return {number for job in live for number in job.spec.after} | {max(ended, default=0)}


def removable(
    ended: Iterable[EndedJob], sizes: Mapping[JobId, int], stay: Collection[JobId], keeping: Keeping, now: Micros
) -> list[EndedJob]:
    """Those that are too old, and the oldest of a user who has too many; oldest first.  ``sizes``: bytes of logs."""
    found, counts, room = list[EndedJob](), Counter[int](), Counter[int]()
    for job in sorted(ended, key=lambda job: (job.ended_us, job.id), reverse=True):
        counts[job.owner] += 1
        room[job.owner] += sizes.get(job.id, 0)
        age = now - job.ended_us
        too_many = counts[job.owner] > keeping.jobs or room[job.owner] > keeping.log_bytes
        if (age > keeping.age_us or too_many) and age > YOUNG and job.id not in stay:
            found.append(job)
    return found[::-1]
