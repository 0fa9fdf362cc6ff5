"""Device time of jobs: the time of their turns; for a job with its device to itself, all the time that it holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from carpool.core.model import Micros

if TYPE_CHECKING:
    from carpool.daemon.jobs.table import JobRecord


class AloneTime(msgspec.Struct, frozen=True):
    """Time for which an attempt that turned out to be exclusive has held its device without a turn.

    ``since_us``: when the attempt got the device to itself (wall clock); None: it shares the device. ``turn_us``: its
    turn time at that moment; ``before_us``: time without a turn before that.
    """

    since_us: Micros | None = None
    turn_us: Micros = 0
    before_us: Micros = 0

    def until(self, now_us: Micros, turn_us: Micros) -> Micros:
        """Return the total up to ``now_us``, given the attempt's turn time ``turn_us`` at that moment."""
        if self.since_us is None:
            return self.before_us
        return self.before_us + max(0, (now_us - self.since_us) - max(0, turn_us - self.turn_us))

    def moved(self, step_us: Micros) -> AloneTime:
        """Return this time adjusted to a wall clock that has been set forward by ``step_us``."""
        return self if self.since_us is None else AloneTime(self.since_us + step_us, self.turn_us, self.before_us)

    def told(self, alone: bool, now_us: Micros, turn_us: Micros) -> AloneTime:
        """Return the time record after the job has become exclusive or has stopped being so."""
        if alone is (self.since_us is not None):
            return self
        return AloneTime(now_us if alone else None, turn_us, self.until(now_us, turn_us))


NEVER_ALONE = AloneTime()


def attempt_us(job: JobRecord, now_us: Micros) -> Micros:
    """Return the device time of the present attempt until now, on one device; at most the time for which it has run.

    Turn time is counted by the job itself.
    """
    if job.started_us is None:
        return 0
    ran_us = max(0, now_us - job.started_us)
    if job.submitted_exclusive or job.recovering:
        return ran_us
    return min(ran_us, job.usage.device_us + job.alone.until(now_us, job.usage.device_us))


def used_us(job: JobRecord, now_us: Micros) -> Micros:
    """Return the device time of all attempts until now, summed over the devices of the job."""
    until = now_us if job.ended_us is None else job.ended_us
    return (sum(ended.device_us for ended in job.past) + attempt_us(job, until)) * job.spec.gpus
