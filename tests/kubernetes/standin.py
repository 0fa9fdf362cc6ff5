"""A stand-in for the kubelet: the real gRPC API over Unix sockets, without what it does with answers."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from carpool.kubernetes.v1beta1 import deviceplugin_pb2 as api
from carpool.kubernetes.v1beta1 import deviceplugin_pb2_grpc as services
from tests.live import PATIENCE_S


class StandInKubelet(services.RegistrationServicer):
    """Like the kubelet it removes all sockets of plugins when it starts, and calls a plugin while that registers."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.socket = directory, directory / "kubelet.sock"
        self.registered: queue.Queue[api.RegisterRequest] = queue.Queue()
        self.refusals = 0  # so many registrations fail before one is answered
        self.start()

    def start(self) -> None:
        for path in self.directory.glob("*.sock"):
            path.unlink()
        self._server = grpc.server(ThreadPoolExecutor(4))
        services.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0).wait()

    def Register(self, request: Any, context: Any) -> api.Empty:  # noqa: N802
        if self.refusals:
            self.refusals -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "the stand-in is not ready")
        with grpc.insecure_channel(f"unix:{self.directory / request.endpoint}") as channel:
            services.DevicePluginStub(channel).GetDevicePluginOptions(api.Empty(), timeout=PATIENCE_S)
        self.registered.put(request)
        return api.Empty()

    def plugin(self) -> RegisteredPlugin:
        """Once one has registered."""
        return RegisteredPlugin(self.directory, self.registered.get(timeout=PATIENCE_S))


class RegisteredPlugin:
    """The kubelet's client of a plugin; its lists are those of one stream."""

    def __init__(self, directory: Path, request: api.RegisterRequest) -> None:
        self.request = request
        self._channel = grpc.insecure_channel(f"unix:{directory / request.endpoint}")
        self.stub = services.DevicePluginStub(self._channel)
        self._stream = self.stub.ListAndWatch(api.Empty())
        self._lists: queue.Queue[dict[str, str] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with suppress(grpc.RpcError):
            for response in self._stream:
                self._lists.put({device.ID: device.health for device in response.devices})
        self._lists.put(None)

    def until(self, health: dict[str, str]) -> None:
        """The plugin has sent this list."""
        while (found := self._lists.get(timeout=PATIENCE_S)) != health:
            assert found is not None, "the stream has ended"

    def until_ended(self) -> None:
        while self._lists.get(timeout=PATIENCE_S) is not None:
            pass

    def allocate(self, *shares: str) -> api.ContainerAllocateResponse:
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=shares)])
        (answer,) = self.stub.Allocate(request, timeout=PATIENCE_S).container_responses
        return answer

    def preferred(self, available: list[str], size: int, included: tuple[str, ...] = ()) -> list[str]:
        about = {"available_deviceIDs": available, "must_include_deviceIDs": included, "allocation_size": size}
        request = api.PreferredAllocationRequest(container_requests=[about])
        (answer,) = self.stub.GetPreferredAllocation(request, timeout=PATIENCE_S).container_responses
        return list(answer.deviceIDs)

    def close(self) -> None:
        self._stream.cancel()
        self._channel.close()
