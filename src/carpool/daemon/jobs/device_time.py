"""Device time of jobs: their turns, and of a job that has its device to itself all the time for which it holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from carpool.core.model import Micros

if TYPE_CHECKING:
    from carpool.daemon.jobs.table import JobRecord


class AloneTime(msgspec.Struct, frozen=True):
    """Time for which an attempt that turned out to be exclusive has held its device without a turn.

    ``since_us``: it has had the device to itself since then, on the wall clock; None: it shares the device.
    ``turn_us``: its turn time by then; ``before_us``: time without a turn before.
    """

    since_us: Micros | None = None
    turn_us: Micros = 0
    before_us: Micros = 0

    def until(self, now_us: Micros, turn_us: Micros) -> Micros:
        """All of it, if the attempt has had so much turn time by now."""
        if self.since_us is None:
            return self.before_us
        return self.before_us + max(0, (now_us - self.since_us) - max(0, turn_us - self.turn_us))

    def moved(self, step_us: Micros) -> AloneTime:
        """The same, on a wall clock that has been set forward by so much."""
        return self if self.since_us is None else AloneTime(self.since_us + step_us, self.turn_us, self.before_us)

    def told(self, alone: bool, now_us: Micros, turn_us: Micros) -> AloneTime:
        """What follows from hearing that the job is exclusive, or is no longer."""
        if alone is (self.since_us is not None):
            return self
        return AloneTime(now_us if alone else None, turn_us, self.until(now_us, turn_us))


NEVER_ALONE = AloneTime()


def attempt_us(job: JobRecord, now_us: Micros) -> Micros:
    """Device time of the present attempt until now, of one device: no more than the time for which it has run.

    Turns are counted by the job itself.
    """
    if job.started_us is None:
        return 0
    ran_us = max(0, now_us - job.started_us)
    if job.submitted_exclusive or job.recovering:
        return ran_us
    return min(ran_us, job.usage.device_us + job.alone.until(now_us, job.usage.device_us))


def used_us(job: JobRecord, now_us: Micros) -> Micros:
    """Device time of all attempts until now, for each device of the job."""
    until = now_us if job.ended_us is None else job.ended_us
    return (sum(ended.device_us for ended in job.past) + attempt_us(job, until)) * job.spec.gpus
