"""Long work on the loop."""

from __future__ import annotations

import asyncio

import pytest

from carpool.daemon.system import background
from carpool.daemon.system.background import in_slices


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
