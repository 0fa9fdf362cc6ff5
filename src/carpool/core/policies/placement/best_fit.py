"""The device that the job fits into most tightly."""

from __future__ import annotations

from carpool.core.policies.base import Key
from carpool.core.policies.placement.base import BasePlacement
from carpool.core.policies.view import DeviceView, JobView, View


class BestFit(BasePlacement):
    """Least free memory first: devices where the job does not fit refuse it, so the tightest one takes it."""

    name = "best-fit"

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        return (device.free,)
