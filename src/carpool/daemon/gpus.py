"""Finding the GPUs that were asked for: their agents are started, and say what there is.

Not yet run on a GPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from carpool.core.model import DeviceId
from carpool.daemon.capacity import gpu_capacity
from carpool.daemon.errors import StartupError
from carpool.daemon.options import DeviceOption
from carpool.devices.base import Device, DeviceError
from carpool.devices.cuda.device import CudaDevice
from carpool.devices.cuda.driver import DriverError
from carpool.devices.cuda.link import Link
from carpool.devices.cuda.messages import Ready
from carpool.devices.host import HostDevice
from carpool.protocol.sizes import format_size

DOCTOR = "`carpool doctor` says what this machine's GPUs can do"
_INVALID_DEVICE = 101  # CUDA_ERROR_INVALID_DEVICE


class Gpus:
    """The agents of the GPUs, from the moment when their capacity is asked for until their devices are made."""

    def __init__(self) -> None:
        self._links: dict[DeviceId, Link] = {}

    def resolved(self, options: Iterable[DeviceOption]) -> tuple[DeviceOption, ...]:
        """With the capacity of those that were to have what there is.  Raises StartupError."""
        return tuple(self._resolved(option) if option.kind == "cuda" else option for option in options)

    def make(self, option: DeviceOption) -> Device:
        """Raises StartupError."""
        if option.kind == "host":
            return HostDevice(option.id, option.capacity)
        ready = self._ready(option)
        return CudaDevice(
            option.id, option.capacity, self._links.pop(option.id), ready.uuid, checkpoint=ready.checkpoint
        )

    def close(self) -> None:
        """End the agents of those that are not made after all."""
        for link in self._links.values():
            link.close()

    def _resolved(self, option: DeviceOption) -> DeviceOption:
        ready = self._ready(option)
        if option.capacity > ready.memory:
            raise StartupError(
                "device_too_large",
                f"{option.id} is to share {format_size(option.capacity)}, but {ready.name} has"
                f" {format_size(ready.memory)}",
                f"leave the size out, which gives {format_size(gpu_capacity(ready.memory))}: --device {option.kind}"
                f":{option.index}",
            )
        return dataclasses.replace(option, capacity=option.capacity or gpu_capacity(ready.memory))

    def _ready(self, option: DeviceOption) -> Ready:
        if option.id not in self._links:
            self._links[option.id] = Link(option.index)
        try:
            return self._links[option.id].ready()
        except DriverError as error:
            if error.code == _INVALID_DEVICE:
                raise StartupError("no_such_gpu", f"there is no GPU {option.index} here: {error}", DOCTOR) from None
            raise StartupError("gpu_unusable", f"GPU {option.index} cannot be used: {error}", DOCTOR) from None
        except DeviceError as error:
            raise StartupError("no_gpu", f"no GPU can be used here: {error}", DOCTOR) from None
