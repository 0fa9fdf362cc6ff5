"""Reclaims pages that free banks keep, where banks have more pages than the device has memory for jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from carpool.core.model import DeviceId
from carpool.devices.base import DeviceBackend, DeviceError

log = logging.getLogger(__name__)
INTERVAL_S = 0.1
RETRY_S = 1.0


class Reclaim:
    """Looks again and again, because jobs fill the banks that they are given only little by little.

    ``usable``: bytes of a device that jobs may have together at present.
    """

    def __init__(self, devices: Mapping[DeviceId, DeviceBackend], usable: Callable[[DeviceId], int]) -> None:
        self._devices = devices
        self._usable = usable

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            for device in self._devices.values():
                try:
                    await self.empty(device)
                except (DeviceError, OSError) as error:  # no descriptors left, for example: tried again
                    log.error("cannot empty the banks of %s: %s", device.id, error)
                    await asyncio.sleep(RETRY_S)

    async def empty(self, device: DeviceBackend) -> None:
        """Free pages, in a thread, until the device has no more than it should or no free bank has any."""
        while (work := device.surplus(self._usable(device.id))) is not None:
            await asyncio.to_thread(work)
