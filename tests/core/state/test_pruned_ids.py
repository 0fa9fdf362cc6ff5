"""What the core still knows of jobs that ended long ago."""

from __future__ import annotations

import sys

from carpool.core.model import Outcome
from carpool.core.state.state import PrunedIds


def test_only_the_outcome_of_each_is_known() -> None:
    forgotten = PrunedIds()
    for number, outcome in enumerate(Outcome):
        forgotten.add(1000 + number, outcome)
        forgotten.add((1 << 40) + number, outcome)
    for number, outcome in enumerate(Outcome):
        assert forgotten.outcome(1000 + number) is outcome is forgotten.outcome((1 << 40) + number)
    assert 999 not in forgotten and 1000 in forgotten and forgotten.outcome(1 << 50) is None


def test_a_million_jobs_take_little_memory() -> None:
    forgotten = PrunedIds()
    for number in range(1_000_000):
        forgotten.add(number, Outcome.CANCELLED)
    assert sys.getsizeof(forgotten._pages) + sum(map(sys.getsizeof, forgotten._pages.values())) < 1_200_000
