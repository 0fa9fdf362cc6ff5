"""Who got how much of a device: from ends of iterations, and from looks at a daemon."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from benchmarks import shares
from benchmarks.accounts import Accounts
from benchmarks.arrivals import spaced


def every(step: float, begin: float, end: float) -> list[float]:
    return [begin + number * step for number in range(round((end - begin) / step) + 1)]


def test_examples() -> None:
    assert doctest.testmod(shares).failed == 0


def test_equal_jobs_have_equal_shares_in_each_phase() -> None:
    jobs = [every(0.5, 0, 30), every(1, 10, 40)]
    found = shares.phases(jobs)
    assert found == [(0, 10, [0]), (10, 30, [0, 1]), (30, 40, [1])]
    begin, end, there = found[1]
    amounts = [shares.iterations_within(jobs[number], begin, end) for number in there]
    assert amounts == [40, 20]
    assert shares.worst_share(amounts) == pytest.approx(1 / 3)


def test_iterations_that_are_cut_count_in_parts() -> None:
    assert shares.iterations_within([0, 4, 8], 1, 7) == 1.5
    assert shares.iterations_within([0, 4, 8], 0, 8) == 2


def test_throughput_is_that_of_one_after_another() -> None:
    alone = [every(1, 0, 10), every(2, 0, 10)]
    together = [every(2, 5, 25), every(4, 7, 31)]  # each at half its speed
    assert shares.total_throughput(alone, together) == pytest.approx(1)


def test_jobs_that_never_met_have_no_common_window() -> None:
    with pytest.raises(ValueError, match="never had work at the same time"):
        shares.common_window([[0.0, 1.0], [2.0, 3.0]])


def test_between_two_looks_it_grows_evenly(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path)
    accounts._seen[1] = [(10.0, 0), (11.0, 400), (13.0, 400), (14.0, 1400)]
    assert accounts.between(1, 10.5, 13.5) == pytest.approx(700)
    assert accounts.between(1, 0.0, 99.0) == 1400  # before the first look and after the last nothing is known


def test_jobs_are_submitted_in_their_order() -> None:
    numbers = iter(range(3))
    assert spaced(lambda: next(numbers), 3, 0.0) == [0, 1, 2]
