"""What everything needs that works on seats: the jobs, their seats and turns, and the core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from carpool.core.events import Event
from carpool.core.model import DeviceId
from carpool.core.policies.view import DeviceView
from carpool.daemon.jobs.table import JobTable
from carpool.daemon.jobs.watchlist import Watchlist
from carpool.daemon.seats.allocator import MemoryFreed, SeatAllocator
from carpool.daemon.seats.successors import Successors
from carpool.daemon.seats.turns import Turns


@dataclass(frozen=True, slots=True)
class SeatParts:
    """``view`` returns what the core says of a device at present; ``post`` takes events for the core."""

    jobs: JobTable
    seating: SeatAllocator
    turns: Turns
    successors: Successors
    watchlist: Watchlist
    freed: MemoryFreed
    view: Callable[[DeviceId], DeviceView]
    post: Callable[[Event], None]
