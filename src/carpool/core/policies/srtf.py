"""Shortest first: by remaining time, by remaining service, or by total length."""

from __future__ import annotations

from carpool.core.model import Micros
from carpool.core.policies.base import BasePolicy, Key
from carpool.core.policies.view import JobView, View


def expected_us(job: JobView) -> Micros:
    """Return the device time that a job is expected to need still.

    Where it is unknown, as much again as the job has had: the usual guess for lengths without a typical size.  So jobs
    of unknown length are served by attained service, a fresh one is tried (and measured) early, and a long one yields
    to jobs that are known to be nearly done.
    """
    return job.remaining_us if job.remaining_us is not None else job.attained_us


class Srtf(BasePolicy):
    """Shortest remaining device time first, in one lane; preempts at iteration boundaries."""

    name = "srtf"
    backfill = True
    preemptive = True

    def admission_key(self, view: View, job: JobView) -> Key:
        return (expected_us(job),)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        ahead = self.turn_key(view, candidate)[0] - self.turn_key(view, holder)[0]
        if ahead < 0:
            return 0
        # A holder of unknown length falls behind while it computes; one of known length only gets shorter.
        return ahead // holder.gang + 1 if holder.remaining_us is None else None


class Srsf(Srtf):
    """Shortest remaining service first (Tiresias, NSDI 2019, section 3): remaining time times devices.

    In lanes, where a job has one device, it is `srtf`.
    """

    name = "srsf"

    def admission_key(self, view: View, job: JobView) -> Key:
        return (expected_us(job) * job.gang,)


class Sjf(BasePolicy):
    """The shortest waiting job starts next, and keeps its turn until it is off the device or done."""

    name = "sjf"

    def admission_key(self, view: View, job: JobView) -> Key:
        return (job.attained_us + expected_us(job),)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        return None
