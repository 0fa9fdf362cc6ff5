"""What is reported of the last minute: bounded, and nothing older."""

from __future__ import annotations

from carpool.protocol.models import ModelFigures
from carpool.serve import metrics
from carpool.serve.metrics import MOST_TIMES, RecentFigures


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_last_minute_counts_and_nothing_before() -> None:
    clock = Clock()
    recent = RecentFigures(clock)
    for _ in range(100):
        recent.answered("a", 5_000)
    recent.answered("a", 90_000)
    recent.missed("a")
    recent.copied("a", 7)
    assert recent.of("a", 3) == ModelFigures(101.0, 5_000, 5_000, 1, 3, 7), "it is younger than a second"
    clock.now += 59
    recent.answered("a", 90_000)
    assert recent.of("a", 0) == ModelFigures(1.73, 5_000, 90_000, 1, 0, 7)
    clock.now += 1
    assert recent.of("a", 0) == ModelFigures(0.02, 90_000, 90_000, 0, 0, 0)
    clock.now += 60
    assert recent.of("a", 0) == recent.of("b", 0) == ModelFigures()


def test_memory_is_bounded_whatever_comes() -> None:
    clock = Clock()
    recent = RecentFigures(clock)
    for number in range(MOST_TIMES * 3):
        recent.answered("a", number)
    assert recent.of("a", 0).p50_us == 2 * MOST_TIMES + MOST_TIMES // 2 - 1
    for number in range(metrics.MOST_MODELS * 2):
        recent.missed(f"m{number}")
    assert len(recent._models) == metrics.MOST_MODELS
    for _ in range(1000):
        clock.now += 1
        recent.missed("a")
    assert len(recent._models["a"].seconds) == metrics.MINUTE_S
