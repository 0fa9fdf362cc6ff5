"""Processes that share one state directory of the stub driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.emulator.harness import Start, Worker, stub_environment


@pytest.fixture
def start(stub_driver: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts workers on one machine: ``start("64MiB,32MiB", EMULATOR_FAIL="...")``.  They end with the test."""
    with ExitStack() as stack:

        def one(devices: str = "64MiB", first: str = "begin()", **more: str) -> Worker:
            environment = stub_environment(stub_driver, tmp_path / "state", devices, **more)
            return stack.enter_context(Worker(environment, first))

        yield one
