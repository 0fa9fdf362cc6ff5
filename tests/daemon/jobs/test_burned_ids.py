"""Numbers of submissions that were not accepted, in whichever order they fail."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from carpool.daemon.jobs.submissions import BurnedIds
from carpool.daemon.jobs.table import JobTable

MOST = 30


@given(st.lists(st.integers(1, MOST)))
def test_it_has_what_was_added_and_nothing_else(numbers: list[int]) -> None:
    refused = BurnedIds()
    for number in numbers:
        refused.add(number)
    assert {number for number in range(-1, MOST + 2) if number in refused} == set(numbers)
    assert "1" not in refused


def test_a_refused_number_was_given_to_no_job() -> None:
    jobs = JobTable()
    first, second = jobs.new_id(), jobs.new_id()
    jobs.refused.add(second)
    assert [jobs.was_given(number) for number in (0, first, second, second + 1)] == [False, True, False, False]
