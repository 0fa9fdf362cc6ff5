"""Daemons whose device is the stub GPU, and what the jobs compute without any of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from carpool.core.model import MIB
from carpool.runtime import native
from tests.cuda.rig import STUB_UUID, Bare, Daemon, Daemons, clean_environment
from tests.cuda.shared import Shared
from tests.devices.cuda_stub import MEMORY, Stub, stub
from tests.emulator.nvml.values import StubNvml
from tests.live import python_path

__all__ = ["stub"]
STAND_IN = Path(__file__).with_name("stand_in")


@pytest.fixture
def nvml(stub: Stub, nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubNvml:
    """The stub GPU is known to NVML, too, in every process that is started from now on; it says what a test wants."""
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join([os.environ["LD_LIBRARY_PATH"], str(nvml_library.parent)]))
    monkeypatch.setenv("EMULATOR_NVML", str(tmp_path / "nvml"))
    made = StubNvml(nvml_library, tmp_path / "nvml")
    made.gpu(STUB_UUID, {"gpm.supported": None, "clock_ms": None})
    return made


@pytest.fixture(scope="session")
def stand_in(pytestconfig: pytest.Config) -> str:
    """PYTHONPATH for programs to which PyTorch is only what they import: see `stand_in/torch.py`."""
    return python_path(*[STAND_IN] * (pytestconfig.option.tier != "all"))


@pytest.fixture
def real_torch() -> dict[str, str]:
    """``env`` of jobs that use PyTorch, or that show what its import itself does to a job."""
    return {"PYTHONPATH": python_path()}


@pytest.fixture(scope="session")
def jobs(stand_in: str) -> dict[str, str]:
    """The environment of all others."""
    if not native.library_path().exists():
        pytest.skip("libcarpool has not been built (make native)")
    return clean_environment() | {"PYTHONPATH": stand_in}


@pytest.fixture
def daemons(stub: Stub, jobs: dict[str, str]) -> Iterator[Daemons]:
    made = Daemons(stub, jobs)
    yield made
    made.close()
    stub.wait_until_free()  # what a daemon and its jobs leave behind ends by itself


@pytest.fixture(scope="session")
def shared(stub_driver: Path, jobs: dict[str, str]) -> Iterator[Shared]:
    with closing(Shared(stub_driver.parent, jobs, [MEMORY], "cuda:0")) as made:
        yield made


@pytest.fixture
def daemon(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """For tests that neither end it nor want it otherwise."""
    with shared.in_use(monkeypatch) as daemon:
        yield daemon


@pytest.fixture(scope="session")
def shared_small(stub_driver: Path, jobs: dict[str, str]) -> Iterator[Shared]:
    with closing(Shared(stub_driver.parent, jobs, [MEMORY], "cuda:0:40MiB")) as made:
        yield made


@pytest.fixture
def small(shared_small: Shared, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """The same with 40 MiB of its GPU."""
    with shared_small.in_use(monkeypatch) as daemon:
        yield daemon


@pytest.fixture(scope="session")
def shared_two(stub_driver: Path, jobs: dict[str, str]) -> Iterator[Shared]:
    devices, options = ["cuda:0:48MiB", "cuda:1"], ["--placement=first-fit"]
    with closing(Shared(stub_driver.parent, jobs, [64 * MIB, MEMORY], *devices, options=options)) as made:
        yield made


@pytest.fixture
def two(shared_two: Shared, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A small GPU and a large one; the small one comes first."""
    with shared_two.in_use(monkeypatch) as daemon:
        yield daemon


@pytest.fixture(scope="session")
def bare(stub_driver: Path, stand_in: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bare]:
    own = {"LD_LIBRARY_PATH": str(stub_driver.parent), "PYTHONPATH": stand_in}
    runner = Bare(clean_environment() | own, tmp_path_factory.mktemp("bare"))
    yield runner
    runner.close()
