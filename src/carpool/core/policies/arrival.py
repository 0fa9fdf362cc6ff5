"""By arrival: first come first served, side by side, and in turns of a time quantum."""

from __future__ import annotations

from carpool.core.model import Micros
from carpool.core.policies.base import BasePolicy, Key
from carpool.core.policies.view import DeviceView, JobView, View


class Fifo(BasePolicy):
    """The job that came first computes whenever it can; the others fill the gaps while it is on the CPU.

    On whole devices jobs start in order of arrival, and no job goes ahead of one that does not fit, unless the setting
    ``backfill`` says so.
    """

    name = "fifo"


class Pack(BasePolicy):
    """Jobs share a lane only when there is no memory for another one; there they take turns, one quantum each."""

    name = "pack"
    backfill = True

    def lanes(self, view: View, device: DeviceView) -> int | None:
        return None

    def turn_key(self, view: View, job: JobView) -> Key:
        return (job.waiting_since_us or 0,)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        return 0


class Tq(BasePolicy):
    """One lane; the job that waits longest computes next, for a time quantum (after nvshare, "TQ", default 30 s).

    A job keeps its turn while no other waits, and a job that is off the device loses the rest of its quantum.
    """

    name = "tq"
    backfill = True
    quantum_us: Micros = 30_000_000

    def turn_key(self, view: View, job: JobView) -> Key:
        return (job.waiting_since_us or 0,)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        return 0
