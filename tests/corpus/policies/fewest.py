"""A placement policy: the device with the fewest jobs."""

from __future__ import annotations

from carpool.policies import BasePlacement, DeviceView, JobView, Key, View


class Fewest(BasePlacement):
    name = "fewest"

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        return (len(device.jobs),)
