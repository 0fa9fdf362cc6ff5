"""What each user and each group has on devices at this moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from carpool.core.model import DeviceId
from carpool.core.state.job import Job


class InUse:
    """Jobs that are on devices, by account and by group, and the devices of each account.  Services do not count."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.running: Counter[int] = Counter()
        self.of_group: Counter[str] = Counter()
        self.devices: dict[int, set[DeviceId]] = {}
        for job in jobs:
            self.add(job)

    def add(self, job: Job) -> None:
        """Count one more job, which has been placed."""
        if job.serves or job.device is None:
            return
        self.running[job.spec.account] += 1
        self.of_group[job.spec.group] += 1
        self.devices.setdefault(job.spec.account, set()).update((job.device, *job.devices))
