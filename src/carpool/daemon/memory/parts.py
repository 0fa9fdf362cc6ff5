"""The parts of this folder, and how they are put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from carpool.core.events import Event
from carpool.core.model import DeviceId, JobId
from carpool.core.policies.view import DeviceView
from carpool.daemon.jobs.owned_fd import OwnedFd
from carpool.daemon.jobs.table import JobTable
from carpool.daemon.jobs.watchlist import Watchlist
from carpool.daemon.memory.bank_holders import BankHolders
from carpool.daemon.memory.copies import StoreCopies
from carpool.daemon.memory.driver_memory import DriverMemory
from carpool.daemon.memory.extents import Supply
from carpool.daemon.memory.grants import GrantSender
from carpool.daemon.memory.movers import Shims
from carpool.daemon.memory.offload import Offloads
from carpool.daemon.memory.restore import RestoreSender, Sent
from carpool.daemon.memory.weights import WeightFiles
from carpool.daemon.memory.weights_adoption import FoundWeights
from carpool.daemon.seats.allocator import SeatAllocator
from carpool.daemon.seats.memory_freed import MemoryFreed
from carpool.daemon.seats.successors import Successors
from carpool.daemon.seats.turns import Turns
from carpool.protocol.seat import Packet


class Sender(Sent, Protocol):
    """The channels of the attached processes (`carpool.daemon.channels.connections`)."""

    def send(self, job: JobId, packet: Packet, memory: Sequence[OwnedFd] = ()) -> None:
        """Send in order, as soon as the process reads.  Raises WrongOwner."""
        ...


class Takers(Sent, Shims, Protocol):
    """The shims, which receive descriptors to keep, and can move memory of stopped jobs."""


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """The parts that other folders need."""

    banking: BankHolders
    copies: StoreCopies
    supply: Supply
    weights: WeightFiles
    found_weights: FoundWeights
    granting: GrantSender
    offloads: Offloads
    driver: DriverMemory


def build_memory(
    jobs: JobTable,
    seating: SeatAllocator,
    copies: StoreCopies,
    turns: Turns,
    lines: Sender,
    shims: Takers,
    watchlist: Watchlist,
    successors: Successors,
    freed: MemoryFreed,
    view: Callable[[DeviceId], DeviceView],
    post: Callable[[Event], None],
) -> MemoryParts:
    """Build the parts in the order of dependence.  ``copies`` come from outside, because seats need them too."""
    weights = WeightFiles(jobs, seating, lines.send, freed)
    banking = BankHolders(seating, lines.send)
    supply = Supply(jobs, seating, banking, lines.send, watchlist)
    returning = RestoreSender(supply, copies, lines, shims)
    granting = GrantSender(seating, banking, returning, weights, successors, watchlist, freed)
    offloads = Offloads(seating, copies, turns, granting, shims, watchlist, post)
    found, driver = FoundWeights(jobs, seating, weights), DriverMemory(jobs, seating, view, post)
    return MemoryParts(banking, copies, supply, weights, found, granting, offloads, driver)
