"""A placement policy: the device with the fewest jobs."""

from __future__ import annotations

from carpool.core.placement import BasePlacement, Key
from carpool.core.view import DeviceView, JobView, View


class Fewest(BasePlacement):
    name = "fewest"

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        return (len(device.jobs),)
