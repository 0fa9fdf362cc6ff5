"""Two nodes of a Ray cluster, real daemons, and the same scripts without any of it."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from carpool.runtime import native
from tests.live import BareRuns, python_path
from tests.ray_cluster.nodes import Nodes
from tests.ray_cluster.signal_actions import kept_signal_actions

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT")


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """Of bare runs: one thread, as the daemons' jobs have, and the whole PyTorch."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("CARPOOL_", "PYTEST_"))}
    return ours | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": ""}


@pytest.fixture(scope="session")
def bare(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareRuns]:
    runner = BareRuns(environment, tmp_path_factory.mktemp("bare"))
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def empty_cluster(environment: dict[str, str]) -> Iterator[Nodes]:
    """Without a node."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed (make ray)")
    if not native.library_path().exists():
        pytest.skip("libcarpool has not been built (make native)")
    root = Path(tempfile.mkdtemp(prefix="cp-"))  # short: paths of sockets are limited to 107 bytes
    patch = pytest.MonkeyPatch()
    (root / "token").write_text(secrets.token_hex(32))  # Ray would put one into the user's home
    patch.setenv("RAY_AUTH_TOKEN_PATH", str(root / "token"))
    patch.setenv("RAY_TMPDIR", str(root))  # the cluster's address goes to its folder ray, and needs one
    (root / "ray").mkdir()
    with kept_signal_actions():
        nodes = Nodes(root, environment | {"PYTHONPATH": python_path()})
        yield nodes
        nodes.close()
    patch.undo()
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def two_nodes(empty_cluster: Nodes) -> Nodes:
    """With devices of 96 MiB."""
    for _ in range(2):
        empty_cluster.add()
    empty_cluster.connect()
    return empty_cluster


@pytest.fixture
def cluster(two_nodes: Nodes) -> Iterator[Nodes]:
    """Two nodes, without actors before and after."""
    yield two_nodes
    two_nodes.kill_actors()
