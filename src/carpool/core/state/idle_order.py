"""Idle devices in the order in which the placement policy tries them, kept from one placement to the next."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping

from carpool.core.events import InvariantError
from carpool.core.model import DeviceId
from carpool.core.policies.base import Key
from carpool.core.state.device import Device

KeyOf = Callable[[Device], Key]
#: The policy's key, newcomers that warm up there, the device's position and its name.
Entry = tuple[Key, int, int, DeviceId]


class IdleOrder:
    """The order, renewed for devices that have changed since it was last asked for.

    Only for policies whose key does not depend on the job (`PlacementPolicy.by_device`).
    """

    def __init__(self) -> None:
        #: Names of devices that have changed; devices add their own (`Device.changed`).
        self.changed: set[DeviceId] = set()
        self._basis: tuple[object, ...] = ()
        self._entries: list[Entry] = []
        self._of: dict[DeviceId, Entry] = {}

    def devices(self, devices: Mapping[DeviceId, Device], key: KeyOf, *basis: object) -> Iterator[Device]:
        """Return the idle devices that take jobs, best first.  ``basis``: what the key depends on besides."""
        if len(basis) != len(self._basis) or any(a is not b for a, b in zip(basis, self._basis, strict=True)):
            self._basis, self._entries, self._of = basis, [], {}
            self.changed.update(devices)
        for name in self.changed:
            self._renew(name, _entry(devices[name], key))
        self.changed.clear()
        return (devices[name] for *_, name in self._entries)

    def check(self, devices: Mapping[DeviceId, Device], key: KeyOf) -> None:
        """Raise InvariantError if a device that has not said so has changed."""
        for name in devices.keys() - self.changed if self._basis else ():
            entry = _entry(devices[name], key)
            if entry != self._of.get(name):
                raise InvariantError(f"{name} is in the order of idle devices as {self._of.get(name)}, and is {entry}")

    def _renew(self, name: DeviceId, entry: Entry | None) -> None:
        before = self._of.pop(name, None)
        if before is not None:
            del self._entries[bisect_left(self._entries, before)]
        if entry is not None:
            self._of[name] = entry
            insort(self._entries, entry)


def _entry(device: Device, key: KeyOf) -> Entry | None:
    if not device.idle or device.spec.drained:
        return None
    return (key(device), len(device.warming_up), device.position, device.spec.id)
