"""A daemon for notebooks, and kernels that are its jobs."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carpool.protocol.client import DaemonClient
from carpool.runtime import native
from demo.session import Session
from tests.notebooks.notebook import Notebook, install_kernel

CAPACITY_MIB = 96
KERNEL_JSON = re.compile(r"^```json\n(.*?)^```", re.MULTILINE | re.DOTALL)


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
def new_notebook(
    client: DaemonClient, home: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Notebook]]:
    """Opens notebooks whose kernels are jobs, and closes them."""
    carpool = shutil.which("carpool", path=str(Path(sys.executable).parent))
    assert carpool is not None, "make setup installs it"
    (documented,) = KERNEL_JSON.findall((root / "docs" / "oversubscription.md").read_text())
    install_kernel(home, documented, {"carpool": carpool, "python": sys.executable})
    for name in ("JUPYTER_PATH", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(home / ("" if name == "JUPYTER_PATH" else name.lower())))
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment = {**os.environ, **threads, "CARPOOL_HOME": str(client.home.root)}
    opened: list[Notebook] = []

    def new() -> Notebook:
        opened.append(Notebook(environment))
        return opened[-1]

    yield new
    for notebook in opened:
        notebook.close()
