"""Every device in turn."""

from __future__ import annotations

from carpool.core.policies.base import Key
from carpool.core.policies.placement.base import BasePlacement
from carpool.core.policies.view import DeviceView, JobView, View


class RoundRobin(BasePlacement):
    """The device whose last placement is longest ago."""

    name = "round-robin"

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        return (device.last_placed,)
