"""Requests about a job, and the device time that counts for its limits.

Changes that users have requested are durable until the job has ended.  Device time is the time of the job's turns; for
a job with its device to itself, all the time that the job holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from carpool.core.model import Micros
from carpool.protocol.api import SubmitRequest

if TYPE_CHECKING:
    from carpool.daemon.jobs.table import JobRecord

#: A time limit (µs), a signal, and how long before the limit the signal is sent (µs).
LimitWarning = tuple[int | None, int, int]


class JobControl(msgspec.Struct, frozen=True, omit_defaults=True):
    """``held_by``: uid of the user who keeps the job from being placed; None: the job is not held.

    ``paused_by``: uid of the user who keeps the job off its device.  ``paused_since_us``: wall clock time of that
    pause. ``paused_us``: how long the present attempt was paused before.
    ``timed_out``: which limit the attempt has reached, so that the attempt is being stopped.  ``warned``: of which
    limit, and with which signal, the attempt has been warned (`JobSpec.warning`); ``warned_of_device_time``: the same
    for the limit of device time.
    ``requeued``: attempts that were or are to be stopped so that the next one follows, each with the uid of the user
    who requested that.
    """

    held_by: int | None = None
    paused_by: int | None = None
    paused_since_us: int | None = None
    paused_us: int = 0
    timed_out: str = ""
    warned: LimitWarning | None = None
    requeued: dict[int, int] = {}
    warned_of_device_time: LimitWarning | None = None

    def paused_in_all_us(self, now_us: int) -> int:
        """Return how long the present attempt has been paused in total."""
        since = now_us if self.paused_since_us is None else self.paused_since_us
        return self.paused_us + max(0, now_us - since)

    def moved(self, step_us: int) -> JobControl:
        """Return this record adjusted to a wall clock that has been set forward by ``step_us``."""
        if self.paused_since_us is None:
            return self
        return msgspec.structs.replace(self, paused_since_us=max(0, self.paused_since_us + step_us))

    def in_next_attempt(self, now_us: int) -> JobControl:
        """Return this record for the next attempt: times begin anew, and a paused job stays paused."""
        since = None if self.paused_since_us is None else now_us
        begun = msgspec.structs.replace(self, paused_us=0, paused_since_us=since, timed_out="")
        return msgspec.structs.replace(begun, warned=None, warned_of_device_time=None)


NOTHING_ASKED = JobControl()


def control_at_submission(owner: int, spec: SubmitRequest) -> JobControl:
    """Return the control record that the submission asks for."""
    return JobControl(held_by=owner if spec.hold else None)


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
