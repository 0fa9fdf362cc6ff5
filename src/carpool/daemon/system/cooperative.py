"""Long work in slices on the daemon's loop, which does other work in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
#: How long other work may have to wait.
SLICE_S = 0.001


class Slice:
    """A time slice; reports when it is over, and can begin anew."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._end_s = perf_counter() + SLICE_S

    @property
    def over(self) -> bool:
        return perf_counter() >= self._end_s


async def others_go_on() -> None:
    """Let the loop do other work that is due."""
    await asyncio.sleep(0)


async def in_slices(
    things: Iterable[T], work: Callable[[T], R], between: Callable[[], Awaitable[None]] = others_go_on
) -> list[R]:
    """Return the results, in order.  The daemon's state may change between two slices, in ``between``."""
    done, present = list[R](), Slice()
    for thing in things:
        done.append(work(thing))
        if present.over:
            await between()
            present.begin()
    return done
