"""Default sizes of devices and of the host store, from the machine's memory."""

from __future__ import annotations

from carpool.core.model import MIB

SMALLEST_DEFAULT = 256 * MIB
LARGEST_DEFAULT = 16 * 1024 * MIB


def default_capacity(memory: int) -> int:
    """Return the default size of a device: a quarter of the memory, whole MiB, between 256 MiB and 16 GiB."""
    return max(SMALLEST_DEFAULT, min(LARGEST_DEFAULT, memory // 4)) // MIB * MIB


def gpu_capacity(memory: int) -> int:
    """Return how much of a GPU's memory is shared; contexts and what libraries take beside Carpool cannot be moved."""
    reserve = max(memory // 32, context_size(memory))
    return (memory - reserve) // (2 * MIB) * (2 * MIB)


def context_size(memory: int) -> int:
    """Return the bytes that a process takes of a GPU by using it at all, until contexts have been measured."""
    return min(memory // 8, 512 * MIB)


def default_store(room: int) -> int:
    """Return the default host store: half of what the devices leave, in whole MiB; the rest is for the jobs."""
    return room // 2 // MIB * MIB
