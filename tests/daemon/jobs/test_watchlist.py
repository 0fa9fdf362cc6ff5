"""What a job owes of its turn, and how much of its time is left when it is asked again."""

from __future__ import annotations

import pytest

from carpool.daemon.jobs.watchlist import LOOK_S, Revocation
from carpool.protocol.seat import Yield


@pytest.mark.parametrize(
    ("asked", "again", "passed_s", "looks"),
    [
        (Yield.PAUSE, Yield.PAUSE, 0.0, 40),
        (Yield.PAUSE, Yield.NOW, 0.0, 40),
        (Yield.NOW, Yield.PAUSE, 0.0, 40),
        (Yield.NOW, Yield.BOUNDARY, 0.0, 40),
        (Yield.BOUNDARY, Yield.BOUNDARY, 0.0, 40),
        (Yield.BOUNDARY, Yield.NOW, 0.0, 0),  # it could go on to its boundary until now
        (Yield.PAUSE, Yield.PAUSE, 10 * LOOK_S, 30),
        (Yield.PAUSE, Yield.PAUSE, 100 * LOOK_S, 0),
    ],
)
def test_looks_that_count_when_a_turn_is_asked_back_again(
    asked: Yield, again: Yield, passed_s: float, looks: int
) -> None:
    assert Revocation(asked, looks=40).carried(again, passed_s) == looks
