"""Finding the GPUs that were asked for: their agents are started, and report what they find.

Not yet run on a GPU.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from carpool.core.model import DeviceId
from carpool.daemon.config.options import MIG, DeviceOption, check_devices, context_size, gpu_capacity
from carpool.daemon.system.errors import StartupError
from carpool.devices.base import DeviceBackend, DeviceError
from carpool.devices.cuda.agent_link import AgentLink
from carpool.devices.cuda.device import CudaDevice
from carpool.devices.cuda.driver import DriverError
from carpool.devices.cuda.messages import Ready
from carpool.devices.host import HostDevice
from carpool.protocol.units import format_size

DOCTOR = "`carpool doctor` says what this machine's GPUs can do; to share host memory instead: carpool up --device host"
_NO_DEVICE, _INVALID_DEVICE = 100, 101  # CUDA_ERROR_NO_DEVICE, CUDA_ERROR_INVALID_DEVICE


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
        return CudaDevice(
            option.id,
            option.capacity,
            self._links.pop(option.id),
            option.uuid or ready.uuid,
            checkpoint=ready.checkpoint and self._suspends,
            model=ready.name,
            context=context,
            spare=max(0, ready.memory - option.capacity - context),  # beside the context that Carpool has itself
        )

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
