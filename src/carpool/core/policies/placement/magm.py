"""Most available GPU memory (CARMA's policy of that name)."""

from __future__ import annotations

from carpool.core.policies.base import Key
from carpool.core.policies.placement.base import BasePlacement
from carpool.core.policies.view import DeviceView, JobView, View


class Magm(BasePlacement):
    """Most free memory first; among equals the device with fewest jobs."""

    name = "magm"

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        return (-device.free, len(device.jobs))
