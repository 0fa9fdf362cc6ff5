"""Uses every module and every method that the documentation offers to a policy."""

from __future__ import annotations

from carpool.core.model import MIB, JobPhase, Settings
from carpool.policies import BasePolicy, DeviceView, JobView, Key, LaneView, Policy, View

#: Names only have to be there.
OFFERED = (Policy, LaneView, Settings, JobPhase)


class Everything(BasePolicy):
    name = "everything"
    backfill = True
    preemptive = True
    quantum_us = 20_000
    settings = ("everything_patience_us",)

    def lanes(self, view: View, device: DeviceView) -> int | None:
        return 2

    def admission_key(self, view: View, job: JobView) -> Key:
        return (-job.weight, job.submitted_us)

    def turn_key(self, view: View, job: JobView) -> Key:
        return (job.reserved.persistent // MIB, job.arrival)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> int | None:
        return view.settings.extra.get("everything_patience_us", 0)

    def victim_key(self, view: View, victim: JobView, ahead: int | None) -> Key:
        return (ahead is not None, -victim.usage.persistent_live, view.now - victim.idle_since_us)

    def next_change(self, view: View, job: JobView) -> int | None:
        return None
