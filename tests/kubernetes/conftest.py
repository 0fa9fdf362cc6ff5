"""The device plugin as a process, beside the daemons of `tests/e2e` and a stand-in for the kubelet."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.containers.conftest import containers
from tests.e2e.conftest import bare, daemons, environment, jobs_environment, workload
from tests.live import PATIENCE_S

if TYPE_CHECKING:
    from tests.kubernetes.standin import RegisteredPlugin, StandInKubelet

__all__ = ["bare", "containers", "daemons", "environment", "jobs_environment", "workload"]


class Node:
    """A machine of a cluster: the stand-in and the processes of plugins."""

    def __init__(self) -> None:
        from tests.kubernetes.standin import StandInKubelet

        self.directory = Path(tempfile.mkdtemp(prefix="cp-"))  # short: paths of sockets are limited to 107 bytes
        self.kubelet: StandInKubelet = StandInKubelet(self.directory)
        self._processes: list[subprocess.Popen[str]] = []
        self._plugins: list[RegisteredPlugin] = []

    def run(self, home: Path, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "carpool.cli", "k8s", "plugin", "--home", str(home)]
        own = ["--kubelet-dir", str(self.directory), *options]
        self._processes.append(subprocess.Popen([*command, *own], stderr=subprocess.PIPE, text=True))
        return self._processes[-1]

    def plugin(self) -> RegisteredPlugin:
        self._plugins.append(self.kubelet.plugin())
        return self._plugins[-1]

    def close(self) -> None:
        for plugin in self._plugins:
            plugin.close()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.communicate(timeout=PATIENCE_S)
        self.kubelet.stop()
        shutil.rmtree(self.directory)


@pytest.fixture
def node() -> Iterator[Node]:
    pytest.importorskip("grpc", reason="grpcio is not installed (pip install 'carpool[k8s]')")
    made = Node()
    yield made
    made.close()
