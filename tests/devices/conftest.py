"""Makes the contract suite importable for the tests of each kind of device, and offers a GPU that is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from carpool.devices.cuda.device import CudaDevice
from tests.devices.cuda_contract import AsJob, make_device
from tests.devices.cuda_stub import Stub, stub
from tests.emulator.harness import Worker, stub_environment

__all__ = ["stub"]


Start = Callable[..., Worker]


@pytest.fixture
def start(stub_driver: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts processes on one stub GPU of 64 MiB."""
    with ExitStack() as stack:

        def one(first: str = "begin()", **more: str) -> Worker:
            environment = stub_environment(stub_driver, tmp_path / "state", "64MiB", **more)
            return stack.enter_context(Worker(environment, first))

        yield one


@pytest.fixture
def device(stub: Stub) -> Iterator[CudaDevice]:
    with closing(make_device()) as made:
        yield made


@pytest.fixture
def job(stub: Stub) -> Iterator[AsJob]:
    """A process that uses the stub GPU."""
    with closing(AsJob()) as made:
        yield made
