"""First come, first served: one lane, everything in order of arrival."""

from __future__ import annotations

from carpool.core.model import Micros
from carpool.core.policies.base import Key
from carpool.core.view import DeviceView, JobView, View


class Fifo:
    """The job that came first computes whenever it can; the others fill the gaps while it is on the CPU."""

    name = "fifo"
    backfill = False
    settings: tuple[str, ...] = ()

    def lanes(self, view: View, device: DeviceView) -> int | None:
        return 1

    def admission_key(self, view: View, job: JobView) -> Key:
        return (job.arrival,)

    def turn_key(self, view: View, job: JobView) -> Key:
        return (job.arrival,)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        return 0 if candidate.arrival < holder.arrival else None
