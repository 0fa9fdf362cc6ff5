"""Equal device time for all, by weight."""

from __future__ import annotations

from carpool.core.model import Micros
from carpool.core.policies.base import Key
from carpool.core.view import DeviceView, JobView, View


class Fair:
    """One lane; the job with the least weighted device time (`JobView.virtual_us`) computes."""

    name = "fair"
    backfill = True
    settings: tuple[str, ...] = ()

    def lanes(self, view: View, device: DeviceView) -> int | None:
        return 1

    def admission_key(self, view: View, job: JobView) -> Key:
        return (job.arrival,)

    def turn_key(self, view: View, job: JobView) -> Key:
        return (job.virtual_us,)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        """When the holder overtakes the candidate.  Without a quantum: at every boundary."""
        if view.settings.quantum_us == 0:
            return 0
        return max(0, candidate.virtual_us - holder.virtual_us) * holder.weight // 100
