"""Shortest remaining device time first."""

from __future__ import annotations

from carpool.core.model import Micros
from carpool.core.policies.base import Key
from carpool.core.view import DeviceView, JobView, View


def expected_us(job: JobView) -> Micros:
    """The device time a job is expected to need still.

    Where nobody knows, as much again as it has had: the usual guess for lengths without a typical size.  So jobs of
    unknown length are served by attained service, a fresh one is tried (and measured) early, and a long one yields to
    whoever is known to be nearly done.
    """
    return job.remaining_us if job.remaining_us is not None else job.attained_us


class Srtf:
    """One lane; preempts at iteration boundaries."""

    name = "srtf"
    backfill = True
    settings: tuple[str, ...] = ()

    def lanes(self, view: View, device: DeviceView) -> int | None:
        return 1

    def admission_key(self, view: View, job: JobView) -> Key:
        return (expected_us(job), job.arrival)

    def turn_key(self, view: View, job: JobView) -> Key:
        return (expected_us(job), job.arrival)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        ahead = expected_us(candidate) - expected_us(holder)
        if ahead < 0:
            return 0
        # A holder of unknown length falls behind while it computes; one of known length only gets shorter.
        return ahead + 1 if holder.remaining_us is None else None
