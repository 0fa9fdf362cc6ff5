"""The devices of the daemon: those that were asked for or found, and those of the last daemon, which jobs need."""

from __future__ import annotations

import dataclasses
import sqlite3
import subprocess
import sys
from collections.abc import Container, Sequence
from pathlib import Path

import msgspec

from carpool.core.model import JobId, Sharing
from carpool.daemon.config.gpu_discovery import DOCTOR
from carpool.daemon.config.options import DaemonOptions, DeviceOption, check_sharing, default_capacity
from carpool.daemon.jobs.files import shim_lives
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.system.errors import StartupError
from carpool.devices import cuda
from carpool.protocol.paths import Home
from carpool.protocol.units import format_size

COUNT = Path(cuda.__file__).with_name("driver_count.py")
#: A driver whose GPUs have been asleep takes seconds for each; one that takes longer hangs.
COUNT_LIMIT_S = 60.0
_FOUND, _NONE_FOUND = "using the NVIDIA GPUs of this machine", "no NVIDIA GPU found, sharing host memory"


def choose_devices(options: DaemonOptions, connection: sqlite3.Connection) -> DaemonOptions:
    """Return the options with the devices to ask for; a GPU's size is not known yet.  Raises StartupError."""
    if options.devices_given:
        return options
    devices, note = recorded_devices(connection), ""
    if not devices:
        devices = _gpus() or (DeviceOption("host0", "host", default_capacity(options.memory)),)
        note = _FOUND if devices[0].kind == "cuda" else _NONE_FOUND
    if options.sharing is not None:
        check_sharing(devices, options.sharing)
        devices = tuple(_shared(device, options.sharing) for device in devices)
    return dataclasses.replace(options, devices=devices, devices_note=note)


def described(options: DaemonOptions) -> DaemonOptions:
    """Return the options with the devices' names and sizes in the note."""
    if not options.devices_note:
        return options
    return dataclasses.replace(options, devices_note=f"{options.devices_note}: {device_words(options.devices)}")


def _shared(device: DeviceOption, sharing: Sharing) -> DeviceOption:
    return dataclasses.replace(device, sharing=sharing) if device.kind == "cuda" else device


def _gpus() -> tuple[DeviceOption, ...]:
    """Return all GPUs that the driver has for this process; of partitioned GPUs all instances."""
    return tuple(
        DeviceOption(f"cuda{index}", "cuda", 0, index, Sharing.TIMESLICE, bare=True) for index in range(_count())
    )


def _count() -> int:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(COUNT)], capture_output=True, text=True, timeout=COUNT_LIMIT_S, check=True
        )
    except subprocess.TimeoutExpired:
        raise _unusable(f"no answer within {COUNT_LIMIT_S:g} s") from None
    except subprocess.CalledProcessError as error:
        raise _unusable(f"asking for the GPUs ended with status {error.returncode}: {error.stderr[-200:]}") from None
    count, *failed = map(int, done.stdout.split())
    if failed:
        raise _unusable(f"CUDA error {failed[0]}")
    return count


def _unusable(why: str) -> StartupError:
    return StartupError("driver_unusable", f"this machine has an NVIDIA driver that does not work: {why}", DOCTOR)


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
