"""A machine for scenarios: it checks itself after every event."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.core.scenario import Scenario


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    """One device of 1000 MiB; a switch at every boundary."""
    made = Scenario()
    made.device("host0", 1000)
    yield made
    made.machine.check()
