"""The devices of the daemon as they are now, for everybody who waits for a change of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from carpool.kubernetes.shares import Standing
from carpool.protocol.api import DeviceInfo
from carpool.protocol.client import ClientError, DaemonClient

log = logging.getLogger(__name__)
#: A daemon that does not answer for so long is down, as far as containers are concerned.
ANSWERS_S = 10.0


class Inventory:
    """Devices that were there once stay in it, unhealthy: the kubelet may have given shares of them to containers."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._changed = threading.Condition()
        self._devices: dict[str, Standing] = {}
        self._health: tuple[int, dict[str, bool]] = (0, {})  # how often it has changed, and to what
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
        """The health of devices once it is another than the ``known``-th, or `wake` was called and it is given up."""
        with self._changed:
            self._changed.wait_for(lambda: self._health[0] != known or given_up())
            return self._health

    def wake(self) -> None:
        """Whoever waits looks whether to give up."""
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
        """Once."""
        if text != self._said:
            log.info("%s", text)
        self._said = text


def _standing(info: DeviceInfo) -> Standing:
    return Standing(healthy=not info.drained, free_bytes=info.free_bytes, uuid=info.uuid)
