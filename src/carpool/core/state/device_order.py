"""Devices in the order in which the placement policy tries them, kept from one placement to the next.

Only for policies whose key depends on the device alone (`PlacementPolicy.by_device`).  Idle devices and those in use
are two lists, renewed for devices that have changed since the list was last asked for.  What all devices have refused
is remembered: only a device that has changed since then can take such a job.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from carpool.core.events import InvariantError
from carpool.core.model import DeviceId
from carpool.core.policies.base import Key
from carpool.core.state.device import Device
from carpool.core.state.job import Requirements

T = TypeVar("T")
KeyOf = Callable[[Device], Key]
#: The policy's key, newcomers that warm up there, the device's position and its name.
Entry = tuple[Key, int, int, DeviceId]
#: Most requirements of which a refusal is remembered, and changes for each device that are listed.
MOST_REFUSALS, MOST_CHANGES = 1000, 8


class SortedDevices:
    """Some of the devices, best first."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._of: dict[DeviceId, Entry] = {}

    def renew(self, name: DeviceId, entry: Entry | None) -> None:
        """Put a device where it belongs now; None: it is not one of these devices."""
        before = self._of.pop(name, None)
        if before is not None:
            del self._entries[bisect_left(self._entries, before)]
        if entry is not None:
            self._of[name] = entry
            insort(self._entries, entry)

    def names(self) -> Iterator[DeviceId]:
        """Yield the names of the devices, best first."""
        return (name for *_, name in self._entries)

    def check(self, name: DeviceId, entry: Entry | None) -> None:
        """Raise InvariantError if the device belongs elsewhere, though it has not said that it has changed."""
        if entry != self._of.get(name):
            raise InvariantError(f"{name} is in the order of devices as {self._of.get(name)}, and is {entry}")


class DeviceOrder:
    """The two lists, and the refusals."""

    def __init__(self) -> None:
        #: Names of devices that have changed since `look`; devices add their own (`Device.changed`).
        self.changed: set[DeviceId] = set()
        self._basis: tuple[object, ...] = ()
        self._devices: Mapping[DeviceId, Device] = {}
        self._kept: dict[DeviceId, Any] = {}
        self._forget()

    def look(self, devices: Mapping[DeviceId, Device], key: KeyOf, basis: tuple[object, ...]) -> None:
        """Take note of changes, before anything is asked.

        ``key``: the policy's; ``basis``: all that decides about devices besides their own state and that of their jobs.
        """
        self._devices, self._key = devices, key
        if basis is not self._basis and basis != self._basis:
            self._basis = basis
            self._forget()
            self.changed.update(devices)
        for name in self.changed:
            self._kept.pop(name, None)
            self._idle.renew(name, _entry(devices[name], key, idle=True))
        self._stale |= self.changed
        self._log += self.changed
        self.changed.clear()
        if len(self._log) > MOST_CHANGES * (len(devices) + 1):
            self._forget_refusals()

    def idle(self) -> Iterator[Device]:
        """Yield the idle devices that take jobs, best first."""
        return map(self._devices.__getitem__, self._idle.names())

    def in_use(self) -> Iterator[Device]:
        """Yield the devices in use that take jobs, best first."""
        for name in self._stale:
            self._in_use.renew(name, _entry(self._devices[name], self._key, idle=False))
        self._stale.clear()
        return map(self._devices.__getitem__, self._in_use.names())

    def refuse(self, asked: Requirements) -> None:
        """Remember that no device takes a job with these requirements as things are."""
        if len(self._refused) >= MOST_REFUSALS:
            self._forget_refusals()
        self._refused[asked] = len(self._log)

    def after_refusal(self, asked: Requirements) -> list[Device] | None:
        """Return the devices that have changed since all refused such a job; None: it is not known that they would."""
        since = self._refused.get(asked)
        return None if since is None else [self._devices[name] for name in dict.fromkeys(self._log[since:])]

    def kept(self, device: Device, work_out: Callable[[], T]) -> T:
        """Return what is worked out from the state of a device and its jobs alone, and kept until one of them changes.

        ``work_out``: always the same for a device.
        """
        name = device.spec.id
        if name in self.changed:
            return work_out()
        found: T | None = self._kept.get(name)
        if found is None:
            found = self._kept[name] = work_out()
        return found

    def check(self, devices: Mapping[DeviceId, Device], key: KeyOf, basis: tuple[object, ...]) -> None:
        """Raise InvariantError if a device that has not said so has changed."""
        for name in devices.keys() - self.changed if basis == self._basis else ():
            self._idle.check(name, _entry(devices[name], key, idle=True))
            if name not in self._stale:
                self._in_use.check(name, _entry(devices[name], key, idle=False))

    def _forget(self) -> None:
        self._idle, self._in_use = SortedDevices(), SortedDevices()
        self._stale: set[DeviceId] = set()
        self._forget_refusals()

    def _forget_refusals(self) -> None:
        self._log: list[DeviceId] = []
        self._refused: dict[Requirements, int] = {}


def _entry(device: Device, key: KeyOf, *, idle: bool) -> Entry | None:
    if device.idle != idle or device.spec.drained:
        return None
    return (key(device), len(device.warming_up), device.position, device.spec.id)
