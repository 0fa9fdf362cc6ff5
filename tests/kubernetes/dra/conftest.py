"""The DRA driver, in a thread with needs of its own or as a process beside a daemon, between two stand-ins."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool.protocol.session import JoinOptions
from tests.live import PATIENCE_S

if TYPE_CHECKING:
    from carpool.kubernetes.allocation import Given
    from carpool.kubernetes.dra.agent import DraAgent
    from tests.kubernetes.dra.standins import StandInApiServer, StandInDraKubelet


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a certificate of this machine, which is its own authority, and its key."""
    directory = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "1", "-nodes",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", directory / "key",
         "-out", directory / "ca.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    return directory


@pytest.fixture
def api_server(certificate: Path, tmp_path: Path) -> Iterator[StandInApiServer]:
    pytest.importorskip("grpc", reason="grpcio is not installed (pip install 'carpool[k8s]')")
    from tests.kubernetes.dra.standins import StandInApiServer

    account = tmp_path / "account"
    account.mkdir()
    shutil.copy(certificate / "ca.crt", account)
    made = StandInApiServer(account, certificate / "key")
    yield made
    made.close()


class DraNode:
    """A node of a cluster.  ``needed``: the options of each container that a driver in a thread has asked for."""

    def __init__(self, api_server: StandInApiServer) -> None:
        from tests.kubernetes.dra.standins import StandInDraKubelet

        self.directory = Path(tempfile.mkdtemp(prefix="cp-"))  # short: paths of sockets are limited to 107 bytes
        self.kubelet: StandInDraKubelet = StandInDraKubelet(self.directory / "kubelet")
        self.cdi, self.api_server = self.directory / "cdi", api_server
        self.needed: list[JoinOptions] = []
        self.gpu = ""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._threads: list[tuple[threading.Event, threading.Thread]] = []

    def options(self, home: Path) -> list[str]:
        api = ["--api-server", self.api_server.url, "--account", str(self.api_server.account), "--node", "n1"]
        kubelet = ["--kubelet-dir", str(self.kubelet.directory), "--cdi-dir", str(self.cdi)]
        return ["k8s", "dra", "--home", str(home), *api, *kubelet]

    def run(
        self, home: Path, *options: str, program: tuple[str, ...] = ("-m", "carpool.cli")
    ) -> subprocess.Popen[bytes]:
        """As a process."""
        self._processes.append(subprocess.Popen([sys.executable, *program, *self.options(home), *options]))
        return self._processes[-1]

    def agent(self) -> DraAgent:
        from carpool.kubernetes.allocation import GpuAccess
        from carpool.kubernetes.dra.agent import DraAgent
        from carpool.kubernetes.dra.api_server import KubernetesApi
        from carpool.kubernetes.dra.cdi import CdiDirectory
        from carpool.kubernetes.dra.driver import Means

        server = KubernetesApi(self.api_server.url, self.api_server.account)
        means = Means("n1", server, CdiDirectory(self.cdi), self._needs, GpuAccess.CDI)
        return DraAgent(self.kubelet.directory, self.directory / "no-daemon", 10, means)

    def start(self) -> None:
        """In a thread, until it is registered."""
        stopped = threading.Event()
        thread = threading.Thread(target=self.agent().run, args=(stopped,), daemon=True)
        thread.start()
        self._threads.append((stopped, thread))
        self.kubelet.register()

    def stop(self) -> None:
        for stopped, thread in self._threads:
            stopped.set()
            thread.join(PATIENCE_S)
        self._threads.clear()

    def _needs(self, options: JoinOptions) -> Given:
        from carpool.kubernetes.allocation import Given

        if options.device != "host0":
            raise OSError(f"there is no device {options.device!r}")
        self.needed.append(options)
        return Given([(Path("/a"), Path("/b"))], {"CARPOOL_JOIN": "/run/carpool/x", "A": "b"}, self.gpu)

    def end_processes(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(PATIENCE_S)

    def close(self) -> None:
        self.stop()
        self.end_processes()
        shutil.rmtree(self.directory)


@pytest.fixture
def dra_node(api_server: StandInApiServer) -> Iterator[DraNode]:
    made = DraNode(api_server)
    yield made
    made.close()
