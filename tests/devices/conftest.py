"""Makes the contract suite importable for the tests of each kind of device, and offers a GPU that is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.devices.cuda_stub import Stub, stub

sys.path.insert(0, str(Path(__file__).parent))

from cuda_contract import AsJob

__all__ = ["stub"]


@pytest.fixture
def job(stub: Stub) -> Iterator[AsJob]:
    """A process that uses the stub GPU."""
    with closing(AsJob()) as made:
        yield made
