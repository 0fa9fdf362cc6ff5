from __future__ import annotations

import asyncio

from carpool.daemon.system.slices import AT_ONCE, in_slices


async def test_other_work_goes_on_between_slices() -> None:
    turns: list[str] = []

    async def other() -> None:
        turns.append("other")

    beside = asyncio.create_task(other())

    def work(number: int) -> int:
        turns.append("slice")
        return -number

    found = await in_slices(range(2 * AT_ONCE), work)
    await beside
    assert found == [-number for number in range(2 * AT_ONCE)]
    assert turns.index("other") == AT_ONCE


async def test_nothing_takes_no_turn() -> None:
    assert await in_slices([], lambda number: number) == []
