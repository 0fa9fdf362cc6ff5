"""Turns by time quantum: round robin, first come first served."""

from __future__ import annotations

from carpool.core.model import Micros
from carpool.core.policies.base import BasePolicy, Key
from carpool.core.policies.view import JobView, View


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
