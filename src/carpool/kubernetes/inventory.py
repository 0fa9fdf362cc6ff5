"""The present devices of the daemon, for threads that wait for a change."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from carpool.kubernetes.allocation import Standing
from carpool.protocol.api import DeviceInfo
from carpool.protocol.client import ClientError, DaemonClient

log = logging.getLogger(__name__)
#: A daemon that does not answer for so long counts as down.
ANSWERS_S = 10.0


class Inventory:
    """Devices of the daemon; a device that is gone stays, unhealthy: containers may still have shares of it."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._changed = threading.Condition()
        self._devices: dict[str, Standing] = {}
        self._health: tuple[int, dict[str, bool]] = (0, {})  # how often health has changed, and the present health
        self._said = ""

    def devices(self) -> dict[str, Standing]:
        with self._changed:
            return dict(self._devices)

    def refresh(self) -> None:
        """Ask the daemon; without an answer all devices are unhealthy."""
        found = {info.id: _standing(info) for info in self._asked()}
        with self._changed:
            gone = {name: Standing(healthy=False, uuid=old.uuid) for name, old in self._devices.items()}
            self._devices = gone | found
            health = {name: standing.healthy for name, standing in self._devices.items()}
            if health != self._health[1]:
                self._health = (self._health[0] + 1, health)
                self._changed.notify_all()

    def wait(self, known: int, given_up: Callable[[], bool]) -> tuple[int, dict[str, bool]]:
        """Wait until health differs from the ``known``-th, or ``given_up()`` is true at a `wake`; return health."""
        with self._changed:
            self._changed.wait_for(lambda: self._health[0] != known or given_up())
            return self._health

    def wake(self) -> None:
        """Let waiting threads check whether to give up."""
        with self._changed:
            self._changed.notify_all()

    def _asked(self) -> list[DeviceInfo]:
        try:
            with DaemonClient(self._home, timeout_s=ANSWERS_S) as client:
                devices = client.devices()
        except (ClientError, OSError) as error:
            self._say(f"all devices are unhealthy: {error}")
            return []
        self._say(f"the daemon has {', '.join(device.id for device in devices) or 'no device'}")
        return devices

    def _say(self, text: str) -> None:
        """Log a text unless it repeats the last one."""
        if text != self._said:
            log.info("%s", text)
        self._said = text


def _standing(info: DeviceInfo) -> Standing:
    return Standing(healthy=not info.drained, free_bytes=info.free_bytes, uuid=info.uuid)
