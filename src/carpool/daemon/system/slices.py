"""Work on many things on the daemon's loop, which does other work in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
#: Of jobs, that is about five milliseconds where all of them wait.
AT_ONCE = 50


async def in_slices(things: Iterable[T], work: Callable[[T], R]) -> list[R]:
    """The results, in order.  What there is may change between two slices."""
    done: list[R] = []
    for number, thing in enumerate(things, 1):
        done.append(work(thing))
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
    return done
