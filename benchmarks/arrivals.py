"""Jobs that arrive at fixed distances of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def spaced(submit: Callable[[], T], count: int, spacing_s: float) -> list[T]:
    """Submit so many, each so long after the one before."""
    begin, found = time.monotonic(), []
    for number in range(count):
        time.sleep(max(0.0, begin + number * spacing_s - time.monotonic()))
        found.append(submit())
    return found
