"""Equal device time for all users, and for all jobs of a user by weight."""

from __future__ import annotations

from carpool.core.model import Micros
from carpool.core.policies.base import BasePolicy, Key
from carpool.core.policies.view import JobView, View


class Fair(BasePolicy):
    """One lane for each user; the job with the least weighted device time (`JobView.virtual_us`) computes there.

    Users who have used less device time are placed first (`core.metering.placing_order`).

    On whole devices the order is looked at again after each time quantum.
    """

    name = "fair"
    backfill = True
    by_user = True
    preemptive = True

    def turn_key(self, view: View, job: JobView) -> Key:
        return (job.virtual_us,)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        """Switch when the holder overtakes the candidate.  Without a quantum: at every boundary."""
        if view.quanta[holder.device] == 0:
            return 0
        return max(0, candidate.virtual_us - holder.virtual_us) * holder.weight // 100

    def next_change(self, view: View, job: JobView) -> Micros | None:
        return max(view.quanta[None], 1)
