"""Attacks of every kind at once for a short time: `make attack` does the same for ten minutes."""

from __future__ import annotations

import random

import pytest

from tests.adversary.attack import attack, figures


@pytest.mark.nightly(
    "attacks of every kind at once, for half a minute",
    stays="tests/adversary/test_boundary.py::test_any_words_and_packets",
)
@pytest.mark.usefixtures("python")
def test_everything_at_once_keeps_every_bound(moments: random.Random) -> None:
    with attack(steps=500, seed=moments.randrange(1 << 32)) as running:
        found = running.run(30.0)
        log = running.daemon.log()
    assert {row.name: row.value for row in figures(found, log) if row.met is False} == {}, log
    assert found.counts["attempts"] > 1000 and found.counts["descriptors of raw jobs"] > 0, found.counts
