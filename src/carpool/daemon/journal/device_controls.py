"""What an administrator has set per device.  Durable: it outlives the daemon, and the device itself."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable

import msgspec

from carpool.core.events import DeviceChanged, DeviceDrained, Event
from carpool.core.model import DeviceId, DeviceSpec, Micros, Oversubscribe
from carpool.daemon.config.options import DeviceOption
from carpool.daemon.journal.quarantine import sound_rows
from carpool.daemon.journal.row_types import MetaRow
from carpool.daemon.journal.writer import Journal
from carpool.protocol.display import user_name

log = logging.getLogger(__name__)

KEY = "device:"  # before the device's id, in the journal's table `meta`


class Control(msgspec.Struct, frozen=True):
    """``quantum_us`` None: as the settings say.  ``drained_by``: uid of the user who drained it; None: not drained.

    ``reserve``: bytes that are kept for other programs; None: not set.
    """

    quantum_us: Micros | None = None
    oversubscribe: Oversubscribe = Oversubscribe.AUTO
    drained_by: int | None = None
    drain_reason: str = ""
    reserve: int | None = None

    @property
    def drained(self) -> str:
        """Why the device is drained, for people; empty: it is not drained."""
        if self.drained_by is None:
            return ""
        return f"drained by {user_name(self.drained_by)}" + (f": {self.drain_reason}" if self.drain_reason else "")


class Controls:
    """The controls of all devices; changes are on the disk before they are in force."""

    def __init__(self, stored: dict[DeviceId, Control], journal: Journal, post: Callable[[Event], None]) -> None:
        self._controls = stored
        self._journal = journal
        self._post = post
        self._changing = asyncio.Lock()  # a change of one value must not bring back an old value of another

    def of(self, device: DeviceId) -> Control:
        return self._controls.get(device, Control())

    def spec(self, device: DeviceOption) -> DeviceSpec:
        """Return the device as the core is told of it."""
        control = self.of(device.id)
        return DeviceSpec(
            device.id,
            device.capacity,
            quantum_us=control.quantum_us,
            oversubscribe=control.oversubscribe,
            sharing=device.sharing,
            drained=control.drained,
            reserve=control.reserve or 0,
        )

    async def change(self, device: DeviceId, change: Callable[[Control], Control]) -> None:
        """Change a device's controls, first on the disk.  Raises JournalFull; then nothing has changed."""
        async with self._changing:
            before = self.of(device)
            control = change(before)
            text = msgspec.json.encode(control).decode()
            await self._journal.durable("INSERT OR REPLACE INTO meta VALUES (?, ?)", (KEY + device, text))
            self._controls[device] = control
            self._post(DeviceChanged(device, control.quantum_us, control.oversubscribe, control.reserve or 0))
            if control.drained != before.drained:
                self._post(DeviceDrained(device, control.drained))


def read_controls(connection: sqlite3.Connection, devices: Iterable[DeviceId]) -> dict[DeviceId, Control]:
    """Read the controls of these devices; those of other devices stay in the journal, as a device may come back."""
    known, found = set(devices), {}
    for device, control in sound_rows(connection, "meta", MetaRow, _control, f"WHERE key LIKE '{KEY}%'"):
        if device in known:
            found[device] = control
        else:
            log.info("the journal has settings of a device %s, which there is not at present", device)
    return found


def _control(row: MetaRow) -> tuple[DeviceId, Control]:
    return row.key.removeprefix(KEY), msgspec.json.decode(row.value, type=Control)
