"""A machine for scenarios: it checks itself after every event."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.core.observed import compare_choices, watch
from tests.core.scenario import Scenario, one_device


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    """One device of 1000 MiB; a switch at every boundary."""
    made = one_device()
    yield made
    made.machine.check()


@pytest.fixture(autouse=True, scope="module")
def observed() -> Iterator[None]:
    """States change as the tables have it; each choice of devices is that of a look at all of them."""
    with pytest.MonkeyPatch.context() as patch:
        watch(patch)
        compare_choices(patch)
        yield
