"""Serving at a socket in the kubelet's directory, and registering the socket whenever the kubelet has started."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import grpc

from carpool.kubernetes.daemon_devices import SaidOnce
from carpool.kubernetes.servicer import OPTIONS, DevicePlugin, Shared
from carpool.kubernetes.v1beta1 import deviceplugin_pb2 as api
from carpool.kubernetes.v1beta1 import deviceplugin_pb2_grpc as services

log = logging.getLogger(__name__)
VERSION = "v1beta1"
ENDPOINT, KUBELET = "carpool.sock", "kubelet.sock"
#: Time between two checks of the daemon and of the kubelet's socket.
INTERVAL_S = 1.0
#: Time limit for the kubelet to answer a registration.
ANSWERS_S = 10.0
#: Streams of the kubelet and calls at the same time.
WORKERS = 16


class RegisteredServer(NamedTuple):
    """A registered server.  ``sockets``: identities of the kubelet's socket and of the server's own."""

    server: grpc.Server
    servicer: DevicePlugin
    sockets: tuple[object, object]


class Plugin:
    """``directory``: the kubelet's directory of device plugins; ``resource``: the name that pods ask for."""

    def __init__(self, directory: Path, resource: str, shared: Shared) -> None:
        self._directory, self._resource, self._shared = directory, resource, shared
        self._serving: RegisteredServer | None = None
        self._said = SaidOnce(log.info)

    def run(self, stopped: threading.Event) -> None:
        """Serve, and stay registered, until ``stopped``."""
        try:
            while not stopped.is_set():
                self._shared.inventory.refresh()
                self._keep_registered()
                stopped.wait(INTERVAL_S)
        finally:
            self._end()

    def _keep_registered(self) -> None:
        """Register again if sockets have changed: a starting kubelet makes a new one and removes those of plugins."""
        now = self._sockets()
        if self._serving is not None and now == self._serving.sockets:
            return
        self._end()  # first: a server that ends removes the file at its address
        if now[0] is None:
            self._said.now(f"waiting for the kubelet: {self._directory / KUBELET} is missing")
            return
        self._serve()

    def _serve(self) -> None:
        """Start the server, then register: the kubelet calls the server while it registers."""
        server, servicer = grpc.server(ThreadPoolExecutor(WORKERS)), DevicePlugin(self._shared)
        services.add_DevicePluginServicer_to_server(servicer, server)
        server.add_insecure_port(f"unix:{self._directory / ENDPOINT}")
        server.start()
        self._serving = RegisteredServer(server, servicer, self._sockets())
        try:
            self._register()
        except grpc.RpcError as error:
            self._said.now(f"the kubelet does not register {self._resource}: {error.details()}; trying again")
            self._end()
        else:
            self._said.now(f"registered {self._resource} with {self._directory / KUBELET}")
            self._said.now("")

    def _register(self) -> None:
        about = api.RegisterRequest(version=VERSION, endpoint=ENDPOINT, resource_name=self._resource, options=OPTIONS)
        with grpc.insecure_channel(f"unix:{self._directory / KUBELET}") as channel:
            services.RegistrationStub(channel).Register(about, timeout=ANSWERS_S)

    def _end(self) -> None:
        if self._serving is not None:
            self._serving.servicer.stop()
            self._serving.server.stop(0).wait()
            self._serving = None

    def _sockets(self) -> tuple[object, object]:
        return _identity(self._directory / KUBELET), _identity(self._directory / ENDPOINT)


def _identity(path: Path) -> object:
    """Return a file's identity, with the time of its last change because inodes are reused; None if it is missing."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns
