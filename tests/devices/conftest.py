"""Makes the contract suite importable for the tests of each kind of device, and offers a GPU that is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.devices.cuda_contract import AsJob
from tests.devices.cuda_stub import Stub, stub

__all__ = ["stub"]


@pytest.fixture
def job(stub: Stub) -> Iterator[AsJob]:
    """A process that uses the stub GPU."""
    with closing(AsJob()) as made:
        yield made
