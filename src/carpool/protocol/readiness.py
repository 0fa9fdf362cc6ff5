"""Waiting for one descriptor, whatever its number: `select.select` takes none above 1,023."""

from __future__ import annotations

import math
import select


def readable(fd: int, timeout_s: float | None = 0.0) -> bool:
    """Whether ``fd`` can be read, or has ended, within ``timeout_s``; None waits without a limit."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else math.ceil(max(0.0, timeout_s) * 1000)))
