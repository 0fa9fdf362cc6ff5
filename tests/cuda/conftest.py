"""Daemons whose device is the stub GPU, and what the jobs compute without any of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from carpool.runtime import native
from tests.cuda.rig import Bare, Daemons, build_allocator, clean_environment
from tests.devices.cuda_stub import Stub, stub

__all__ = ["stub"]


@pytest.fixture(scope="session")
def allocator(stub_driver: Path) -> Path:
    return build_allocator(stub_driver)


@pytest.fixture
def daemons(stub: Stub, allocator: Path) -> Iterator[Daemons]:
    if not native.library_path().exists():
        pytest.skip("libcarpool has not been built (make native)")
    made = Daemons(stub, allocator)
    yield made
    made.close()
    stub.wait_until_free()  # what a daemon and its jobs leave behind ends by itself


@pytest.fixture(scope="module")
def bare(stub_driver: Path, allocator: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bare]:
    environment = clean_environment(allocator) | {"LD_LIBRARY_PATH": str(stub_driver.parent)}
    runner = Bare(environment, tmp_path_factory.mktemp("bare"))
    yield runner
    runner.close()
