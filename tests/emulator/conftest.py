"""Processes that share one state directory of the stub driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from emulator.build import build_driver, build_libraries
from tests.emulator.harness import Start, Worker, stub_environment
from tests.emulator.torch_imports import IMPORTS, torch_like


@pytest.fixture
def start(stub_driver: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts workers on one machine: ``start("64MiB,32MiB", EMULATOR_FAIL="...")``.  They end with the test."""
    with ExitStack() as stack:

        def one(devices: str = "64MiB", first: str = "begin()", **more: str) -> Worker:
            environment = stub_environment(stub_driver, tmp_path / "state", devices, **more)
            return stack.enter_context(Worker(environment, first))

        yield one


@pytest.fixture(scope="session")
def torch_lib(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torch_like(tmp_path_factory.mktemp("torch-like"), IMPORTS)


@pytest.fixture(scope="session")
def libraries(torch_lib: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the emulated driver and libraries."""
    directory = tmp_path_factory.mktemp("emulated")
    build_driver(directory)
    build_libraries(torch_lib, directory)
    return directory


@pytest.fixture
def worker(libraries: Path, tmp_path: Path) -> Iterator[Worker]:
    environment = stub_environment(libraries / "libcuda.so.1", tmp_path / "state")
    with Worker(environment) as process:
        process.run(f"import ctypes, library_calls; folder = {str(libraries)!r}")
        yield process
