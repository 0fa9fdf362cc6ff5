"""The driver as a process: its sockets, and what it does now and then until it is stopped."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

from carpool.kubernetes.daemon_devices import SaidOnce, asked_devices
from carpool.kubernetes.dra.api_server import ApiServerError
from carpool.kubernetes.dra.claims import DRIVER
from carpool.kubernetes.dra.driver import Claims, DraServicer, Means, RegistrationServicer
from carpool.kubernetes.dra.slices import RECHECK_S, SlicePublisher
from carpool.kubernetes.dra.v1.registration_pb2_grpc import add_RegistrationServicer_to_server
from carpool.protocol.api import DeviceInfo

log = logging.getLogger(__name__)
#: Time between two looks at the daemon, and before another try after a failure.
INTERVAL_S, AGAIN_S = 1.0, 5.0
WORKERS = 4


class TwoDrivers(Exception):
    """Another driver serves this node."""


class DraAgent:
    """``kubelet``: the kubelet's directory."""

    def __init__(self, kubelet: Path, home: Path, shares: int, means: Means) -> None:
        self._own, self._registry = kubelet / "plugins" / DRIVER, kubelet / "plugins_registry"
        self._home, self._cdi, self._claims = home, means.cdi, Claims(means)
        self._of_api, self._of_daemon = SaidOnce(log.warning), SaidOnce(log.warning)
        self._publisher = SlicePublisher(means.api_server, means.node, shares, self._devices)
        self._cleaned = float("-inf")

    def run(self, stopped: threading.Event) -> None:
        """Serve until ``stopped``.  Raises TwoDrivers, OSError, RuntimeError where a socket cannot be made."""
        self._own.mkdir(mode=0o700, parents=True, exist_ok=True)
        endpoint = self._own / "dra.sock"
        with _only_one(self._own / "lock"):
            self._cdi.clean()
            self._serve(endpoint, stopped)

    def _serve(self, endpoint: Path, stopped: threading.Event) -> None:
        with (
            _served(endpoint, DraServicer(self._claims).add_to),
            _served(self._registry / f"{DRIVER}-reg.sock", lambda server: _add_registration(server, endpoint)),
        ):
            while not stopped.is_set():
                stopped.wait(INTERVAL_S if self._work() else AGAIN_S)

    def _work(self) -> bool:
        """Return whether everything is as it should be."""
        try:
            self._publisher.publish()
            if time.monotonic() - self._cleaned > RECHECK_S:
                self._claims.remove_stale()
                self._cleaned = time.monotonic()
        except (ApiServerError, OSError, ValueError) as error:
            self._of_api.now(str(error))
            return False
        self._of_api.now("")
        return True

    def _devices(self) -> Sequence[DeviceInfo] | None:
        devices = asked_devices(self._home, self._of_daemon, "no pods are placed here")
        if devices is not None:
            self._of_daemon.now("")
        return devices


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Keep others out: a driver that ends would remove the sockets of its successor.  Raises TwoDrivers."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TwoDrivers(f"another driver serves this node: {path} is locked") from None
        yield


@contextmanager
def _served(path: Path, add: Callable[[grpc.Server], None]) -> Iterator[None]:
    """Serve at a socket that only this user can connect to.  Raises RuntimeError."""
    server = grpc.server(ThreadPoolExecutor(WORKERS))
    add(server)
    before = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{path}")
    finally:
        os.umask(before)
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


def _add_registration(server: grpc.Server, endpoint: Path) -> None:
    add_RegistrationServicer_to_server(RegistrationServicer(str(endpoint)), server)
