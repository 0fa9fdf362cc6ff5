"""How old what is known is, and what was usual."""

from __future__ import annotations

import pytest

from carpool.telemetry.samples import WAITING, CapabilityLevel, Sample, Window, WindowState, mean

SECOND = 1_000_000


def sample(second: int, busy: int | None = None) -> Sample:
    return Sample(second * SECOND, CapabilityLevel.BASIC, "no GPM", busy_ppm=busy)


@pytest.fixture
def seen() -> Window:
    return Window(span_us=60 * SECOND, stale_us=5 * SECOND)


def test_the_latest_sample_with_its_age_until_it_is_too_old(seen: Window) -> None:
    assert seen.state(0) == WindowState(CapabilityLevel.NONE, WAITING), "at first nothing is known"
    seen.add(sample(10))
    seen.add(latest := sample(11))
    assert seen.state(12 * SECOND) == WindowState(CapabilityLevel.BASIC, "no GPM", SECOND, latest)
    assert seen.state(16 * SECOND).level is CapabilityLevel.BASIC
    assert seen.state(18 * SECOND) == WindowState(CapabilityLevel.NONE, "no answer for 7 s", 7 * SECOND)


def test_a_failure_hides_the_sample_but_not_its_age(seen: Window) -> None:
    seen.add(sample(10))
    seen.fail("the GPU is lost")
    assert seen.state(11 * SECOND) == WindowState(CapabilityLevel.NONE, "the GPU is lost", SECOND)
    seen.add(sample(12))
    assert seen.state(12 * SECOND).level is CapabilityLevel.BASIC


def test_averages_over_the_window(seen: Window) -> None:
    for second, busy in ((0, 900_000), (30, 100_000), (50, None), (70, 200_001)):
        seen.add(sample(second, busy))
    assert [each.taken_us // SECOND for each in seen.recent(70 * SECOND)] == [30, 50, 70]
    assert mean(seen.recent(70 * SECOND), "busy_ppm") == 150_000
    assert mean(seen.recent(70 * SECOND), "power_mw") is None
    assert seen.recent(140 * SECOND) == []


def test_a_window_does_not_grow(seen: Window) -> None:
    for second in range(1000):
        seen.add(sample(second))
    assert len(seen._samples) == 61
