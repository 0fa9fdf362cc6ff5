"""The parts of this folder, and how they are put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from carpool.core.model import JobId
from carpool.daemon.jobs.seat_table import OwnedFd
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
from carpool.daemon.seats.turns import SeatParts
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


def build_memory(seats: SeatParts, copies: StoreCopies, lines: Sender, shims: Takers) -> MemoryParts:
    """Build the parts in the order of dependence.  ``copies`` come from outside, because seats need them too."""
    jobs, seating, watchlist, freed = seats.jobs, seats.seating, seats.watchlist, seats.freed
    weights = WeightFiles(jobs, seating, lines.send, freed)
    banking = BankHolders(seating, lines.send)
    supply = Supply(jobs, seating, banking, lines.send, watchlist)
    returning = RestoreSender(supply, copies, lines, shims)
    granting = GrantSender(seating, banking, returning, weights, seats.successors, watchlist, freed)
    offloads = Offloads(seating, copies, seats.turns, granting, shims, watchlist, seats.post)
    found, driver = FoundWeights(jobs, seating, weights), DriverMemory(jobs, seating, seats.view, seats.post)
    return MemoryParts(banking, copies, supply, weights, found, granting, offloads, driver)
