"""Least utilised GPU (CARMA's policy of that name)."""

from __future__ import annotations

from carpool.core.policies.base import Key
from carpool.core.policies.placement.base import BasePlacement
from carpool.core.policies.view import DeviceView, JobView, View

BUSY_PPM = 1_000_000


class Lug(BasePlacement):
    """Least active multiprocessors first (`Load.active_ppm`); among equals most free memory.

    A device of unknown load counts as fully active while jobs are there.
    """

    name = "lug"

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        if device.load is not None:
            return (device.load.active_ppm, -device.free)
        return (BUSY_PPM if device.jobs else 0, -device.free)
