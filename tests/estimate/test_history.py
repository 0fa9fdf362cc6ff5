"""The history's estimate: most of the runs got by with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.estimate import ESTIMATORS
from carpool.estimate.auto import HistoryEstimator
from carpool.estimate.base import CannotEstimate, Run, Subject
from carpool.protocol.estimates import AT_SUBMISSION, NAMES

RUNS = st.lists(st.builds(Run, st.integers(0, 1 << 40), st.integers(0, 1 << 40)), min_size=1, max_size=30)


@given(RUNS)
def test_most_runs_got_by_with_it(runs: list[Run]) -> None:
    found = HistoryEstimator().estimate(Subject(history=tuple(runs)))
    assert sum(run.persistent <= found.persistent for run in runs) >= 0.95 * len(runs)
    assert sum(run.ephemeral <= found.ephemeral for run in runs) >= 0.95 * len(runs)
    assert found.low <= found.total <= found.high


def test_one_odd_run_in_twenty_does_not_count() -> None:
    runs = (*[Run(100, 10)] * 19, Run(5000, 10))
    found = HistoryEstimator().estimate(Subject(history=runs))
    assert (found.persistent, found.ephemeral, found.high) == (100, 10, 5010)


def test_without_runs_it_says_so() -> None:
    with pytest.raises(CannotEstimate, match="no earlier run"):
        HistoryEstimator().estimate(Subject(command=("python", "train.py")))


def test_the_names_are_the_same_on_both_sides() -> None:
    assert tuple(ESTIMATORS) == NAMES
    assert set(AT_SUBMISSION) == set(NAMES) - {"history"}
