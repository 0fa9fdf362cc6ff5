"""Jobs that outlived a daemon need the devices they run on: a restart must bring the same ones back."""

from __future__ import annotations

import sqlite3

import msgspec

from carpool.daemon.errors import StartupError
from carpool.daemon.jobfiles import shim_lives
from carpool.daemon.options import DeviceOption, Options
from carpool.protocol.paths import Home
from carpool.protocol.sizes import format_size


def settle_devices(options: Options, connection: sqlite3.Connection) -> tuple[DeviceOption, ...]:
    """The devices to start with, recorded for the next time.  Raises StartupError if running jobs need others."""
    devices = options.devices
    earlier = _recorded(connection)
    if earlier and earlier != devices and _jobs_live(options.home, connection):
        if options.devices_given:
            was = " ".join(f"--device {device.text}" for device in earlier)
            was += "".join(sorted({f" --sharing {device.sharing}" for device in earlier if device.kind == "cuda"}))
            raise StartupError(
                "devices_in_use",
                f"jobs still run on other devices than these ({_words(earlier)} instead of {_words(devices)})",
                f"start with {was} (or without --device), and change the devices when no job runs",
            )
        devices = earlier
    text = msgspec.json.encode(devices).decode()
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('devices', ?)", (text,))
    return devices


def _recorded(connection: sqlite3.Connection) -> tuple[DeviceOption, ...]:
    row = connection.execute("SELECT value FROM meta WHERE key = 'devices'").fetchone()
    return msgspec.json.decode(row[0], type=tuple[DeviceOption, ...]) if row else ()


def _jobs_live(home: Home, connection: sqlite3.Connection) -> bool:
    unfinished = connection.execute("SELECT id FROM jobs WHERE phase != 'ended'").fetchall()
    return any(shim_lives(home.job(job)) for (job,) in unfinished)


def _words(devices: tuple[DeviceOption, ...]) -> str:
    return ", ".join(f"{device.id} of {format_size(device.capacity)}" for device in devices)
