"""Side by side: as many lanes as memory allows, filled in order of arrival."""

from __future__ import annotations

from carpool.core.model import Micros
from carpool.core.policies.base import BasePolicy, Key
from carpool.core.policies.view import DeviceView, JobView, View


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
