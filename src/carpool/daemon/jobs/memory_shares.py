"""How the processes of a job on a GPU divide what the core has granted the job.

The core knows one persistent grant per job.  A part of it is the attached process's own, by grant; its companions have
*shares*, as much memory of the driver itself.  Their requests and its own are made one after another, because an answer
of the core's does not say whose it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from carpool.daemon.jobs.seat_table import Board
from carpool.protocol.seat import Seat


class Sharer(Protocol):
    """A companion: the limit in its seat is its share, in bytes."""

    @property
    def board(self) -> Board: ...

    @property
    def seat(self) -> Seat: ...


@dataclass(eq=False, slots=True)
class Ask:
    """A request for ``total`` bytes in all, ``more`` of them new."""

    who: Sharer | None  # None: the attached process
    total: int
    number: int = 0
    optional: bool = False
    more: int = 0
    own: int = 0  # what was counted for the attached process beside it
    gone: bool = False  # its process has ended since


@dataclass(slots=True)
class Shares:
    """Of one job; all sizes in bytes."""

    lent: int = 0  # the shares together
    owed: int = 0  # given back, and still in the core's books: for who asks next, or on its way there
    held: int = 0  # granted for a companion, whose answer follows
    lends: bool = False  # a companion has asked for memory
    asked: bool = False  # the first of ``asks`` is the core's
    anew: bool = False  # the first of ``asks`` is being withdrawn from the core, which gets it again
    asks: list[Ask] = field(default_factory=list)
    coming: list[Ask] = field(default_factory=list)  # granted, and not there yet

    def own(self, granted: int) -> int:
        """What is the attached process's of what the job has been granted."""
        return max(0, granted - self.lent - self.owed - self.held)

    def of(self, who: Sharer | None) -> Ask | None:
        """Its request that has not been answered."""
        return next((ask for ask in (*self.asks, *self.coming) if ask.who is who), None)

    def coming_to(self, who: Sharer) -> list[Ask]:
        return [ask for ask in self.coming if ask.who is who]
