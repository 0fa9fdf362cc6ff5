"""How old what is known is, and what was usual."""

from __future__ import annotations

from carpool.telemetry.samples import WAITING, CapabilityLevel, Sample, Window, WindowState, mean

SECOND = 1_000_000


def sample(second: int, busy: int | None = None) -> Sample:
    return Sample(second * SECOND, CapabilityLevel.BASIC, "no GPM", busy_ppm=busy)


def window() -> Window:
    return Window(span_us=60 * SECOND, stale_us=5 * SECOND)


def test_at_first_nothing_is_known() -> None:
    assert window().state(0) == WindowState(CapabilityLevel.NONE, WAITING)


def test_the_latest_sample_with_its_age() -> None:
    seen = window()
    seen.add(sample(10))
    seen.add(latest := sample(11))
    assert seen.state(12 * SECOND) == WindowState(CapabilityLevel.BASIC, "no GPM", SECOND, latest)


def test_what_is_too_old_says_nothing() -> None:
    seen = window()
    seen.add(sample(10))
    assert seen.state(15 * SECOND).level is CapabilityLevel.BASIC
    assert seen.state(17 * SECOND) == WindowState(CapabilityLevel.NONE, "no answer for 7 s", 7 * SECOND)


def test_a_failure_hides_the_sample_but_not_its_age() -> None:
    seen = window()
    seen.add(sample(10))
    seen.fail("the GPU is lost")
    assert seen.state(11 * SECOND) == WindowState(CapabilityLevel.NONE, "the GPU is lost", SECOND)
    seen.add(sample(12))
    assert seen.state(12 * SECOND).level is CapabilityLevel.BASIC


def test_averages_over_the_window() -> None:
    seen = window()
    for second, busy in ((0, 900_000), (30, 100_000), (50, None), (70, 200_001)):
        seen.add(sample(second, busy))
    assert [each.taken_us // SECOND for each in seen.recent(70 * SECOND)] == [30, 50, 70]
    assert mean(seen.recent(70 * SECOND), "busy_ppm") == 150_000
    assert mean(seen.recent(70 * SECOND), "power_mw") is None
    assert seen.recent(140 * SECOND) == []


def test_a_window_does_not_grow() -> None:
    seen = window()
    for second in range(1000):
        seen.add(sample(second))
    assert len(seen._samples) == 61
