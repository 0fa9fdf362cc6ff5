"""Keeping the devices of the last daemon, which jobs that outlived it need, whether they wait or run."""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Sequence

import msgspec

from carpool.core.model import JobId
from carpool.daemon.config.options import DaemonOptions, DeviceOption
from carpool.daemon.jobs.files import shim_lives
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.system.errors import StartupError
from carpool.protocol.paths import Home
from carpool.protocol.units import format_size


def settle_devices(
    options: DaemonOptions, connection: sqlite3.Connection, privileges: Privileges, joined: Container[JobId] = ()
) -> tuple[DeviceOption, ...]:
    """Return the devices to start with, recorded for the next time.  Raises StartupError if running jobs need others.

    ``joined``: jobs without shims whose processes live.
    """
    devices = options.devices
    earlier = recorded_devices(connection)
    if earlier and earlier != devices and _any_lives(privileges, options.home, _unfinished(connection), joined):
        was = " ".join(f"--device {device.text}" for device in earlier)
        was += "".join(sorted({f" --sharing {device.sharing}" for device in earlier if device.kind == "cuda"}))
        raise StartupError(
            "devices_in_use",
            f"running jobs use other devices ({device_words(earlier)}) than the ones given ({device_words(devices)})",
            f"start with {was} (or without --device), and change the devices when no job runs",
        )
    text = msgspec.json.encode(devices).decode()
    try:
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('devices', ?)", (text,))
    except sqlite3.OperationalError as error:
        hint = "free disk space, or choose another --home"
        raise StartupError("journal_unusable", f"cannot write the journal: {error}", hint) from None
    return devices


def recorded_devices(connection: sqlite3.Connection) -> tuple[DeviceOption, ...]:
    """Return the devices of the last daemon; none if this is the first daemon of its home."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'devices'").fetchone()
    return msgspec.json.decode(row[0], type=tuple[DeviceOption, ...]) if row else ()


def _unfinished(connection: sqlite3.Connection) -> list[JobId]:
    return [job for (job,) in connection.execute("SELECT id FROM jobs WHERE phase != 'ended'")]


def _any_lives(privileges: Privileges, home: Home, jobs: Sequence[JobId], joined: Container[JobId]) -> bool:
    return any(job in joined or shim_lives(privileges, home.job(job)) for job in jobs)


def device_words(devices: Sequence[DeviceOption]) -> str:
    """Return the devices for people, as in host0 of 4 GiB."""
    return ", ".join(f"{device.id} of {format_size(device.capacity)}" for device in devices)
