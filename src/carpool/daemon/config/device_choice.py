"""The devices of the daemon: those that were asked for or found, and those of the last daemon, which jobs need.

Not yet run on a GPU.
"""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import subprocess
import sys
from collections.abc import Container, Sequence
from pathlib import Path

import msgspec

from carpool.core.model import DeviceId, JobId, Sharing
from carpool.daemon.config.options import (
    MIG,
    DaemonOptions,
    DeviceOption,
    check_devices,
    check_sharing,
    context_size,
    default_capacity,
    gpu_capacity,
)
from carpool.daemon.jobs.files import shim_lives
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.system.errors import StartupError
from carpool.devices import cuda
from carpool.devices.base import DeviceBackend, DeviceError
from carpool.devices.cuda.agent_link import AgentLink
from carpool.devices.cuda.device import CudaDevice, GpuTraits
from carpool.devices.cuda.driver import DriverError
from carpool.devices.cuda.messages import Ready
from carpool.devices.host import HostDevice
from carpool.protocol.paths import Home
from carpool.protocol.units import format_size

DOCTOR = "`carpool doctor` says what this machine's GPUs can do; to share host memory instead: carpool up --device host"
_NO_DEVICE, _INVALID_DEVICE = 100, 101  # CUDA_ERROR_NO_DEVICE, CUDA_ERROR_INVALID_DEVICE
COUNT = Path(cuda.__file__).with_name("driver_count.py")
#: A driver whose GPUs have been asleep takes seconds for each; one that takes longer hangs.
COUNT_LIMIT_S = 60.0
_FOUND, _NONE_FOUND = "using the NVIDIA GPUs of this machine", "no NVIDIA GPU found, sharing host memory"


class GpuDiscovery:
    """The agents of the GPUs, from the moment when their capacity is asked for until their devices are made."""

    def __init__(self, *, suspends: bool) -> None:
        """``suspends``: whether a driver that is able to may suspend jobs for this daemon."""
        self._suspends = suspends
        self._links: dict[DeviceId, AgentLink] = {}

    def resolved(self, options: Sequence[DeviceOption], memory: int) -> tuple[DeviceOption, ...]:
        """Return each instance as a device of its own, with the GPU's capacity where none was given.

        ``memory``: bytes that this machine may use.  Raises StartupError.
        """
        single = _numbered([each for option in options for each in self._instances(option)])
        check_devices(single, memory)
        return tuple(self._resolved(option) if option.kind == "cuda" else option for option in single)

    def _instances(self, option: DeviceOption) -> list[DeviceOption]:
        """Return the instances of a partitioned GPU named without a number; the driver shows a process only one."""
        if not option.bare:
            return [option]
        option = dataclasses.replace(option, bare=False)
        found = _visible(self._ready(option).instances)
        if len(found) < 2:
            return [option]
        self._links.pop(option.id).close()
        return [dataclasses.replace(option, index=0, uuid=uuid) for uuid in found]

    def make(self, option: DeviceOption) -> DeviceBackend:
        """Make the device.  Raises StartupError."""
        if option.kind == "host":
            return HostDevice(option.id, option.capacity)
        ready = self._ready(option)
        context = context_size(ready.memory)
        traits = GpuTraits(
            uuid=option.uuid or ready.uuid,
            model=ready.name,
            checkpoint=ready.checkpoint and self._suspends,
            context=context,
            spare=max(0, ready.memory - option.capacity - context),  # beside the context that Carpool has itself
        )
        return CudaDevice(option.id, option.capacity, self._links.pop(option.id), traits)

    def close(self) -> None:
        """End the agents of GPUs for which no device has been made."""
        for link in self._links.values():
            link.close()

    def _resolved(self, option: DeviceOption) -> DeviceOption:
        ready = self._ready(option)
        if option.capacity > ready.memory:
            raise StartupError(
                "device_too_large",
                f"{option.id} is to share {format_size(option.capacity)}, but {ready.name} has"
                f" {format_size(ready.memory)}",
                f"leave the size out, which gives {format_size(gpu_capacity(ready.memory))}: --device {option.name}",
            )
        return dataclasses.replace(option, capacity=option.capacity or gpu_capacity(ready.memory))

    def _ready(self, option: DeviceOption) -> Ready:
        if option.id not in self._links:
            self._links[option.id] = AgentLink(option.index, visible=option.uuid)
        try:
            return self._links[option.id].ready()
        except DriverError as error:
            if option.uuid and error.code in (_INVALID_DEVICE, _NO_DEVICE):
                text = f"there is no MIG instance {option.uuid} here: {error}"
                raise StartupError("no_such_gpu", text, "`nvidia-smi -L` and `carpool doctor` name them") from None
            if error.code == _INVALID_DEVICE:
                raise StartupError("no_such_gpu", f"there is no GPU {option.index} here: {error}", DOCTOR) from None
            raise StartupError("gpu_unusable", f"GPU {option.index} cannot be used: {error}", DOCTOR) from None
        except DeviceError as error:
            raise StartupError("no_gpu", f"no GPU can be used here: {error}", DOCTOR) from None


def _numbered(options: Sequence[DeviceOption]) -> list[DeviceOption]:
    """Name instances mig0, mig1 ... in their order, however they were named."""
    uuids = [option.uuid for option in options if option.uuid]
    return [
        dataclasses.replace(option, id=f"mig{uuids.index(option.uuid)}") if option.uuid else option
        for option in options
    ]


def _visible(instances: Sequence[str]) -> list[str]:
    """Return the instances that this process may use: it may have been given only some."""
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.startswith(MIG)]
    return [uuid for uuid in instances if not named or any(uuid.startswith(name) for name in named)]


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
