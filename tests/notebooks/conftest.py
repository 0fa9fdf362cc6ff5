"""A daemon for notebooks, and kernels that are its jobs."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carpool.protocol.client import DaemonClient
from carpool.runtime import native
from tests.notebooks.notebook import Notebook, install_kernel
from tools.demo.session import Session

CAPACITY_MIB = 96


@pytest.fixture
def home() -> Iterator[Path]:
    """A short path: sockets allow 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="cp-") as directory:
        yield Path(directory)


@pytest.fixture
def client(home: Path) -> Iterator[DaemonClient]:
    """Of a daemon with the settings that everybody has."""
    if not native.library_path().exists():
        pytest.skip("libcarpool has not been built (make native)")
    with Session(home / "state", [f"host:{CAPACITY_MIB}MiB"], "fair") as client:
        yield client


@pytest.fixture
def new_notebook(client: DaemonClient, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Notebook]]:
    """Opens notebooks whose kernels are jobs, and closes them."""
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(home / name.lower()))
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment = {**os.environ, **threads, "CARPOOL_HOME": str(client.home.root)}
    monkeypatch.setenv("JUPYTER_PATH", str(install_kernel(home, sys.executable, environment)))
    opened: list[Notebook] = []

    def new() -> Notebook:
        opened.append(Notebook(environment))
        return opened[-1]

    yield new
    for notebook in opened:
        notebook.close()
