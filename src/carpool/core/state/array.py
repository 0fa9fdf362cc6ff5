"""The places of an array of which only so many jobs run at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from carpool.core.model import JobId


@dataclass(slots=True)
class ArrayPlaces:
    """``taken``: by elements that wait for a device, run, or wait for their next attempt; ``waiting``: for a place."""

    taken: set[JobId] = field(default_factory=set)
    waiting: set[JobId] = field(default_factory=set)
