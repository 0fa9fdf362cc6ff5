"""Attacks of every kind at once for a short time: `make attack` does the same for ten minutes."""

from __future__ import annotations

import random

import pytest

from tests.adversary.attack import attack, figures


@pytest.mark.nightly(
    "attacks of every kind at once, for a minute",
    stays="tests/adversary/test_boundary.py::test_any_words_and_packets",
)
@pytest.mark.usefixtures("python")
def test_everything_at_once_keeps_every_bound(moments: random.Random, pytestconfig: pytest.Config) -> None:
    """A turn is asked back by force after one second: there are hand-overs enough within the time.

    That leases end is shown by `tests/daemon/sigstop/test_joined_pauses.py`, and in ten minutes by `make attack`, which
    also says how long others wait and how much was done: here that depends on what else the machine does.
    """
    slack = pytestconfig.option.slack
    with attack(steps=500, seed=moments.randrange(1 << 32)) as running:
        found = running.run(60.0 * slack, forced_s=1.0, slack=slack)
        log = running.daemon.log()
    broken = [
        row for row in figures(found, log) if row.unit != "s" and (not row.value if row.at_least else row.met is False)
    ]
    assert [(row.name, row.value, row.detail) for row in broken] == [], log
