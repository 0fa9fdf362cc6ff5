"""How much memory this machine has, and what of it devices and the host store get unless somebody says otherwise."""

from __future__ import annotations

import os
from pathlib import Path

from carpool.core.model import MIB

SMALLEST_DEFAULT = 256 * MIB
LARGEST_DEFAULT = 16 * 1024 * MIB
PAGE = os.sysconf("SC_PAGE_SIZE")


def default_capacity(memory: int) -> int:
    """Of a device: a quarter of the memory, whole MiB, between 256 MiB and 16 GiB."""
    return max(SMALLEST_DEFAULT, min(LARGEST_DEFAULT, memory // 4)) // MIB * MIB


def gpu_capacity(memory: int) -> int:
    """Of a GPU's memory; the rest is for what cannot be moved: contexts, and what libraries take beside Carpool."""
    reserve = max(memory // 32, min(memory // 8, 512 * MIB))
    return (memory - reserve) // (2 * MIB) * (2 * MIB)


def default_store(room: int) -> int:
    """Of the host store: half of what the devices leave, in whole MiB; the other half is for the jobs themselves."""
    return room // 2 // MIB * MIB


def memory_bytes() -> int:
    """RAM that this process may use: MemTotal, or the limit of its control group if that is lower."""
    total = os.sysconf("SC_PHYS_PAGES") * PAGE
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return total if limit == "max" else min(total, int(limit))
