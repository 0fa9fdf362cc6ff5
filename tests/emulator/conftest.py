"""Processes that share one state directory of the stub driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import libraries as built
from tests.emulator.harness import Start, Worker, stub_environment


@pytest.fixture
def start(stub_driver: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts workers on one machine: ``start("64MiB,32MiB", EMULATOR_FAIL="...")``.  They end with the test."""
    with ExitStack() as stack:

        def one(devices: str = "64MiB", first: str = "begin()", **more: str) -> Worker:
            environment = stub_environment(stub_driver, tmp_path / "state", devices, **more)
            return stack.enter_context(Worker(environment, first))

        yield one


@pytest.fixture(scope="session")
def torch_lib() -> Path:
    return built.torch()


@pytest.fixture(scope="session")
def libraries() -> Path:
    """A folder with the emulated driver and libraries."""
    return built.vendor()


@pytest.fixture
def worker(libraries: Path, tmp_path: Path) -> Iterator[Worker]:
    environment = stub_environment(libraries / "libcuda.so.1", tmp_path / "state")
    with Worker(environment) as process:
        process.run(f"import ctypes, library_calls; folder = {str(libraries)!r}")
        yield process
