"""Device time between two moments, from looks at a daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.__main__ import available
from benchmarks.accounts import Accounts
from benchmarks.arrivals import spaced

ROOT = Path(__file__).resolve().parents[2]


def test_between_two_looks_it_grows_evenly(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path)
    accounts._seen[1] = [(10.0, 0), (11.0, 400), (13.0, 400), (14.0, 1400)]
    assert accounts.between(1, 10.5, 13.5) == pytest.approx(700)
    assert accounts.between(1, 0.0, 99.0) == 1400  # before the first look and after the last nothing is known


def test_jobs_are_submitted_in_their_order() -> None:
    numbers = iter(range(3))
    assert spaced(lambda: next(numbers), 3, 0.0) == [0, 1, 2]


def test_every_benchmark_is_in_the_table() -> None:
    table = (ROOT / "benchmarks" / "README.md").read_text()
    assert [name for name in available() if f"`bench_{name}.py`" not in table] == []
