"""How much memory this machine has."""

from __future__ import annotations

import os
from pathlib import Path

from carpool.devices.memfd import PAGE


def memory_bytes() -> int:
    """Return the RAM that this process may use: MemTotal, or the limit of its control group if that is lower."""
    total = os.sysconf("SC_PHYS_PAGES") * PAGE
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return total if limit == "max" else min(total, int(limit))
