"""The two clocks, and noticing that the wall clock has been set."""

from __future__ import annotations

import pytest

from carpool.daemon.system import clock
from carpool.daemon.system.clock import LEAST_STEP_US, WallSteps, wall_ahead_us

DAY = 86_400_000_000


def test_steps_are_noticed_once_and_small_ones_when_they_add_up() -> None:
    ahead = [100]
    steps = WallSteps(read=lambda: ahead[0])
    assert steps.take() == 0
    for step in (400 * DAY, -403 * DAY):
        ahead[0] += step
        assert (steps.take(), steps.take()) == (step, 0)
    ahead[0] += LEAST_STEP_US - 1
    assert steps.take() == 0
    ahead[0] += 1
    assert steps.take() == LEAST_STEP_US


def test_a_step_before_the_start_is_one() -> None:
    assert WallSteps(7, lambda: DAY).take() == DAY - 7


def test_a_process_that_was_stopped_between_two_looks_has_seen_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monotonic = iter([0, 9_000_000, 9_000_000, 9_000_001])
    monkeypatch.setattr(clock, "monotonic_us", lambda: next(monotonic))
    monkeypatch.setattr(clock, "wall_us", lambda: DAY + 9_000_000)
    assert wall_ahead_us() == DAY
