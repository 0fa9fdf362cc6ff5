"""A machine for scenarios: it checks itself after every event."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.core.observed import watch
from tests.core.scenario import Scenario, one_device


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    """One device of 1000 MiB; a switch at every boundary."""
    made = one_device()
    yield made
    made.machine.check()


@pytest.fixture(autouse=True, scope="module")
def observed() -> Iterator[None]:
    """Every change of a job's or a lane's state is one that the tables have."""
    with pytest.MonkeyPatch.context() as patch:
        watch(patch)
        yield
