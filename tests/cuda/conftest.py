"""Daemons whose device is the stub GPU, and what the jobs compute without any of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from carpool.runtime import native
from emulator.build import build_nvml
from tests.cuda.rig import STUB_UUID, Bare, Daemons, build_allocator, clean_environment
from tests.devices.cuda_stub import Stub, stub
from tests.emulator.nvml.values import StubNvml
from tests.live import python_path

__all__ = ["stub"]
STAND_IN = Path(__file__).with_name("stand_in")


@pytest.fixture(scope="session")
def allocator(stub_driver: Path) -> Path:
    return build_allocator(stub_driver)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_nvml(tmp_path_factory.mktemp("nvml"))


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
def real_torch() -> None:
    """For tests whose programs use PyTorch, or that show what its import itself does to a job."""


@pytest.fixture
def daemons(stub: Stub, allocator: Path, stand_in: str, request: pytest.FixtureRequest) -> Iterator[Daemons]:
    if not native.library_path().exists():
        pytest.skip("libcarpool has not been built (make native)")
    torch = python_path() if "real_torch" in request.fixturenames else stand_in
    made = Daemons(stub, clean_environment(allocator) | {"PYTHONPATH": torch})
    yield made
    made.close()
    stub.wait_until_free()  # what a daemon and its jobs leave behind ends by itself


@pytest.fixture(scope="session")
def bare(stub_driver: Path, allocator: Path, stand_in: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bare]:
    own = {"LD_LIBRARY_PATH": str(stub_driver.parent), "PYTHONPATH": stand_in}
    runner = Bare(clean_environment(allocator) | own, tmp_path_factory.mktemp("bare"))
    yield runner
    runner.close()
