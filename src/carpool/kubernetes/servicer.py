"""The plugin's side of the kubelet's API.

The present devices of the daemon, for threads that wait for a change.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import grpc

from carpool.kubernetes.allocation import GpuAccess, NeedsOf, NoShare, Standing, answer, device_of, preferred, share_ids
from carpool.kubernetes.daemon_devices import SaidOnce, asked_devices
from carpool.kubernetes.v1beta1 import deviceplugin_pb2 as api
from carpool.kubernetes.v1beta1 import deviceplugin_pb2_grpc as services
from carpool.protocol.api import DeviceInfo
from carpool.protocol.session import JoinOptions

log = logging.getLogger(__name__)


class Inventory:
    """Devices of the daemon; a device that is gone stays, unhealthy: containers may still have shares of it."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._changed = threading.Condition()
        self._devices: dict[str, Standing] = {}
        self._health: tuple[int, dict[str, bool]] = (0, {})  # how often health has changed, and the present health
        self._said = SaidOnce(log.info)

    def devices(self) -> dict[str, Standing]:
        """Return the devices by their names, those that are gone included."""
        with self._changed:
            return dict(self._devices)

    def refresh(self) -> None:
        """Ask the daemon; without an answer all devices are unhealthy."""
        found = {info.id: _standing(info) for info in self._asked()}
        with self._changed:
            gone = {name: Standing(healthy=False, uuid=old.uuid) for name, old in self._devices.items()}
            self._devices = gone | found
            health = {name: standing.healthy for name, standing in self._devices.items()}
            if health != self._health[1]:
                self._health = (self._health[0] + 1, health)
                self._changed.notify_all()

    def wait(self, known: int, given_up: Callable[[], bool]) -> tuple[int, dict[str, bool]]:
        """Wait until health differs from the ``known``-th, or ``given_up()`` is true at a `wake`; return health."""
        with self._changed:
            self._changed.wait_for(lambda: self._health[0] != known or given_up())
            return self._health

    def wake(self) -> None:
        """Let waiting threads check whether to give up."""
        with self._changed:
            self._changed.notify_all()

    def _asked(self) -> list[DeviceInfo]:
        devices = asked_devices(self._home, self._said, "all devices are unhealthy")
        if devices is not None:
            self._said.now(f"the daemon has {', '.join(device.id for device in devices) or 'no device'}")
        return devices or []


def _standing(info: DeviceInfo) -> Standing:
    return Standing(healthy=not info.drained, free_bytes=info.free_bytes, uuid=info.uuid)


T = TypeVar("T")
OPTIONS = api.DevicePluginOptions(get_preferred_allocation_available=True)


class Shared(NamedTuple):
    """State of all registrations.  ``shares``: number of shares of each device."""

    inventory: Inventory
    shares: int
    needs_of: NeedsOf
    access: GpuAccess


class DevicePlugin(services.DevicePluginServicer):
    """Serves one registration; ``stop`` ends its streams."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End the streams of this registration."""
        self._stopped.set()
        self._shared.inventory.wake()

    def GetDevicePluginOptions(self, request: Any, context: Any) -> api.DevicePluginOptions:  # noqa: N802
        """Return that preferences are asked for."""
        return OPTIONS

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[api.ListAndWatchResponse]:  # noqa: N802
        """Yield the list of shares, and again whenever it has changed."""
        inventory, known = self._shared.inventory, -1
        context.add_callback(inventory.wake)
        while True:
            known, health = inventory.wait(known, lambda: self._over(context))
            if self._over(context):
                return
            yield api.ListAndWatchResponse(devices=self._listed(health))

    def GetPreferredAllocation(self, request: Any, context: Any) -> api.PreferredAllocationResponse:  # noqa: N802
        """Return the shares that are given best, for each container."""
        devices, response = self._shared.inventory.devices(), api.PreferredAllocationResponse()
        for each in request.container_requests:
            asked = (each.available_deviceIDs, each.must_include_deviceIDs, each.allocation_size)
            response.container_responses.add(deviceIDs=preferred(*asked, devices))
        return response

    def Allocate(self, request: Any, context: Any) -> api.AllocateResponse:  # noqa: N802
        """Return mounts, variables and devices of each container."""
        answers = [_or_abort(context, self._given, each.devices_ids) for each in request.container_requests]
        return api.AllocateResponse(container_responses=answers)

    def PreStartContainer(self, request: Any, context: Any) -> api.PreStartContainerResponse:  # noqa: N802
        """Return an empty answer: nothing has to be done."""
        return api.PreStartContainerResponse()

    def _over(self, context: Any) -> bool:
        return self._stopped.is_set() or not context.is_active()

    def _listed(self, health: dict[str, bool]) -> list[api.Device]:
        words = {device: "Healthy" if healthy else "Unhealthy" for device, healthy in health.items()}
        return [
            api.Device(ID=share, health=word)
            for device, word in words.items()
            for share in share_ids(device, self._shared.shares)
        ]

    def _given(self, shares: Sequence[str]) -> api.ContainerAllocateResponse:
        device = device_of(shares)
        if device not in self._shared.inventory.devices() or set(shares) - {*share_ids(device, self._shared.shares)}:
            raise NoShare(f"there is no share {', '.join(shares)}")
        return answer(self._shared.needs_of(JoinOptions(device=device)), self._shared.access)


def _or_abort(context: Any, made: Callable[[Sequence[str]], T], shares: Sequence[str]) -> T:
    """Call ``made``; turn an error into a status with a text, which the kubelet writes into the pod's events."""
    try:
        return made(shares)
    except NoShare as error:
        code, text = grpc.StatusCode.INVALID_ARGUMENT, str(error)
    except Exception as error:  # noqa: BLE001 - without a text the pod's owner learns nothing
        code, text = grpc.StatusCode.UNAVAILABLE, f"Carpool cannot prepare the container: {error}"
    log.warning("%s", text)
    context.abort(code, text)
    raise AssertionError("abort raises")
