"""Short runs of what `make soak` does for an hour."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.soak.__main__ import daemon, figures, run
from tests.soak.samples import AMOUNTS, Sample, growths

FLAT = Sample(0.0, *(10 * amount for amount in AMOUNTS.values()))


@pytest.mark.parametrize("quantity", AMOUNTS)
def test_what_grows_is_found(quantity: str) -> None:
    """By three times what it may in an hour; the others stay as they are."""
    steps = [(minute, round(3 * AMOUNTS[quantity] * minute / 60)) for minute in range(15, 60)]
    samples = [replace(FLAT, at_s=60.0 * at, **{quantity: 10 * AMOUNTS[quantity] + more}) for at, more in steps]
    assert [each.quantity for each in growths(samples) if each.per_hour > each.allowed] == [quantity]


def test_what_more_jobs_at_a_time_have_is_no_growth() -> None:
    """Every fifth sample none lives; at the end there are three times as many as at the beginning."""
    lives = [number // 100 + 1 if number % 5 else 0 for number in range(300)]
    samples = [replace(FLAT, at_s=12.0 * at, descriptors=20 + 10 * more) for at, more in enumerate(lives)]
    assert [each.quantity for each in growths(samples) if each.per_hour > each.allowed] == []


@pytest.mark.nightly("half a minute of load of every kind", stays="test_what_grows_is_found")
def test_all_that_users_do_comes_out_right() -> None:
    with daemon() as made:
        found = run(made, 30.0, seed=1)
        log = made.log()
    assert found.wrong == [] and sum(found.done.values()) > 10, found
    assert [row.name for row in figures(found, log)[:2] if row.met is False] == [], log
