"""How much is read from one user."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from carpool.daemon.system import background
from carpool.daemon.system.allowance import BURST_S, PAUSE_S, Allowance, Allowances
from carpool.daemon.system.background import in_slices

PER_S = 100
BURST = int(PER_S * BURST_S)


@dataclass
class Clock:
    now: float = 50.0

    def __call__(self) -> float:
        return self.now


def read(allowance: Allowance, most: int = 10 * BURST) -> int:
    """How many messages are read before nothing may be for a moment."""
    for count in range(most):
        if not allowance.spend() and allowance.pause_s():
            return count
    return most


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def allowance(clock: Clock) -> Allowance:
    return Allowance(PER_S, clock)


def test_much_may_be_said_at_once_and_then_as_much_as_the_rate_allows(allowance: Allowance, clock: Clock) -> None:
    assert read(allowance) == BURST
    for _ in range(20):
        clock.now += 0.5
        assert read(allowance) == PER_S // 2
    clock.now += 100 * BURST_S
    assert read(allowance) == BURST, "nothing is saved beyond the burst"


def test_the_pause_is_never_so_short_that_the_daemon_does_little_else(allowance: Allowance) -> None:
    read(allowance)
    assert not allowance.spend()
    assert allowance.pause_s() == PAUSE_S


def test_who_keeps_below_the_rate_is_never_told_to_wait(allowance: Allowance, clock: Clock) -> None:
    for _ in range(5 * BURST):
        clock.now += 1 / PER_S
        assert allowance.spend() or not allowance.pause_s()


def test_many_who_are_told_to_wait_use_nothing_up(allowance: Allowance, clock: Clock) -> None:
    read(allowance)
    assert all(not allowance.spend() and allowance.pause_s() for _ in range(1000))
    clock.now += 1
    assert read(allowance) == PER_S


def test_a_user_is_named_once_for_each_flood(allowance: Allowance, clock: Clock) -> None:
    said = []
    for _ in range(5):
        read(allowance)
        said.append(allowance.newly_over())
        clock.now += 1
    assert said == [True, False, False, False, False]
    clock.now += BURST_S
    read(allowance)
    assert allowance.newly_over()


def test_users_have_allowances_of_their_own() -> None:
    allowances = Allowances(PER_S)
    assert allowances.of(1) is allowances.of(1) is not allowances.of(2)


# Long work on the loop


async def test_other_work_goes_on_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "perf_counter", iter(range(1000)).__next__)  # each look is a second later
    order: list[object] = []

    async def other() -> None:
        order.append("other")

    def work(number: int) -> int:
        order.append(number)
        return -number

    task = asyncio.create_task(other())
    assert await in_slices(range(3), work) == [0, -1, -2]
    assert order == [0, "other", 1, 2]
    await task


async def test_short_work_is_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "perf_counter", lambda: 0.0)

    async def between() -> None:
        raise AssertionError

    assert await in_slices(range(1000), lambda number: number, between) == list(range(1000))


async def test_nothing_to_do() -> None:
    assert await in_slices([], lambda number: number) == []
