"""Waiting for one descriptor, whatever its number is: `select.select` takes none above 1,023."""

from __future__ import annotations

import math
import select


def readable(fd: int, timeout_s: float | None = 0.0) -> bool:
    """Whether it can be read by then, or has ended.  None: for as long as it takes."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else math.ceil(max(0.0, timeout_s) * 1000)))
