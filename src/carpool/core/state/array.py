"""The places of an array of which only so many jobs run at once, and what its first trials have taught."""

from __future__ import annotations

from dataclasses import dataclass, field

from carpool.core.model import JobId, Memory


@dataclass(slots=True)
class ArrayPlaces:
    """Places of one array: ``taken`` by elements that wait for a device, run, or wait for their next attempt.

    ``waiting``: elements that wait for a place.
    """

    taken: set[JobId] = field(default_factory=set)
    waiting: set[JobId] = field(default_factory=set)


@dataclass(slots=True)
class ArrayMemory:
    """Memory needs learned from the elements of one array that have run.

    ``jobs``: elements that have not ended; ``memory``: most that one has needed so far, None: nothing is known;
    ``without``: how many have succeeded without any use of the device.
    """

    jobs: set[JobId] = field(default_factory=set)
    memory: Memory | None = None
    without: int = 0
