"""The parts of this folder, and how they are put together."""

from __future__ import annotations

from collections.abc import Sequence
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


class MemoryParts:
    """The parts that other folders need, made in the order of dependence.

    ``copies`` come from outside, because seats need them too.
    """

    def __init__(self, seats: SeatParts, copies: StoreCopies, lines: Sender, shims: Takers) -> None:
        jobs, seating, watchlist = seats.jobs, seats.seating, seats.watchlist
        self.copies = copies
        self.weights = WeightFiles(jobs, seating, lines.send, seats.freed)
        self.banking = BankHolders(seating, lines.send)
        self.supply = Supply(jobs, seating, self.banking, lines.send, watchlist)
        returning = RestoreSender(self.supply, copies, lines, shims)
        self.granting = GrantSender(
            seating, self.banking, returning, self.weights, seats.successors, watchlist, seats.freed
        )
        self.offloads = Offloads(seating, copies, seats.turns, self.granting, shims, watchlist, seats.post)
        self.found_weights = FoundWeights(jobs, seating, self.weights)
        self.driver = DriverMemory(jobs, seating, seats.view, seats.post)
