"""The plugin's side of the kubelet's API."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import grpc

from carpool.kubernetes.allocation import GpuAccess, NeedsOf, NoShare, answer, device_of, preferred, share_ids
from carpool.kubernetes.inventory import Inventory
from carpool.kubernetes.v1beta1 import deviceplugin_pb2 as api
from carpool.kubernetes.v1beta1 import deviceplugin_pb2_grpc as services

log = logging.getLogger(__name__)
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
        self._stopped.set()
        self._shared.inventory.wake()

    def GetDevicePluginOptions(self, request: Any, context: Any) -> api.DevicePluginOptions:  # noqa: N802
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
        devices, response = self._shared.inventory.devices(), api.PreferredAllocationResponse()
        for each in request.container_requests:
            asked = (each.available_deviceIDs, each.must_include_deviceIDs, each.allocation_size)
            response.container_responses.add(deviceIDs=preferred(*asked, devices))
        return response

    def Allocate(self, request: Any, context: Any) -> api.AllocateResponse:  # noqa: N802
        answers = [_or_abort(context, self._given, each.devices_ids) for each in request.container_requests]
        return api.AllocateResponse(container_responses=answers)

    def PreStartContainer(self, request: Any, context: Any) -> api.PreStartContainerResponse:  # noqa: N802
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
        return answer(self._shared.needs_of(device), self._shared.access)


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
