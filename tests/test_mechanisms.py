"""Each mechanism is shown in `make test`, on one rig where more show no more."""

from __future__ import annotations

from tests.mechanism_table import PAGE, renewed
from tests.mechanisms import CHEAP, MECHANISMS, RIGS, Mechanism
from tests.test_tiers import collected, is_test
from tests.tiers import Collected

__all__ = ["collected"]


def named(row: Mechanism, *rigs: str) -> list[str]:
    """The tests of these rigs."""
    return [f"tests/{test}" for rig in rigs for test in row.tests.get(rig, ())]


def wrong_row(row: Mechanism) -> bool:
    """A reason is for what stays on several rigs."""
    dear = [rig for rig in row.stays if rig != CHEAP]
    return not row.stays or not {*row.stays} <= {*row.tests} <= {*RIGS} or (len(dear) > 1) != bool(row.why)


def test_rows_make_sense() -> None:
    assert [row.name for row in MECHANISMS if wrong_row(row)] == []
    assert len({row.name for row in MECHANISMS}) == len(MECHANISMS)


def test_every_test_exists() -> None:
    tests = {test for row in MECHANISMS for test in named(row, *RIGS)}
    assert [test for test in sorted(tests) if not is_test(*test.split("::"))] == []


def test_the_table_is_that_of_the_page() -> None:
    assert renewed(PAGE.read_text()) == PAGE.read_text(), "run `python -m tests.mechanism_table`"


def test_what_stays_is_in_make_test(collected: list[Collected]) -> None:
    """With some of its parameters at least."""
    runs = {test.function for test in collected if test.nightly is None}
    assert sorted({test for row in MECHANISMS for test in named(row, CHEAP, *row.stays)} - runs) == []


def test_the_other_rigs_are_in_make_test_all_only(collected: list[Collected]) -> None:
    """A test that another mechanism needs on its rig stays with that one."""
    runs = {test.function for test in collected if test.nightly is None}
    needed = {test for row in MECHANISMS for test in named(row, CHEAP, *row.stays)}
    others = {test for row in MECHANISMS for test in named(row, *RIGS)} - needed
    assert sorted(others & runs) == [], "mark them nightly, or say in tests/mechanisms.py why their rig stays"
