"""The devices of a daemon started without ``--device``: those of the last daemon, else the GPUs, else the host."""

from __future__ import annotations

import dataclasses
import sqlite3
import subprocess
import sys
from pathlib import Path

from carpool.core.model import Sharing
from carpool.daemon.config.device_continuity import device_words, recorded_devices
from carpool.daemon.config.gpu_discovery import DOCTOR
from carpool.daemon.config.options import DaemonOptions, DeviceOption, check_sharing, default_capacity
from carpool.daemon.system.errors import StartupError
from carpool.devices import cuda

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
