"""A modelled service: each of its iterations is a batch for one model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from carpool.core import events
from carpool.core.model import Cause, Demand, JobId
from tests.core.seats import Process


@dataclass(eq=False)
class ServiceProcess(Process):
    """``demands``: what its batches need, in turn; ``placed``: what it may have access to."""

    demands: tuple[Demand, ...] = ()
    placed: str | None = None
    refused: int = 0
    batches: Iterator[Demand] | None = None
    demand: Demand | None = field(default=None)

    def touches(self) -> bool:
        """A new batch is wanted with what it needs; after a turn was taken from it, with what it needed then."""
        if self.turn:
            return False
        if not self.want:
            self.want = True
            self.demand = self.demands[self.done % len(self.demands)] if self.demands else None
            self.send(events.TurnWanted(self.id, demand=self.demand))
        return True

    def let_go(self, cause: Cause, processes: dict[JobId, Process]) -> None:
        assert self.successor is None, "the turns of services are not passed on"
        self.placed = None
        super().let_go(cause, processes)

    def may_compute(self) -> bool:
        """Whether what it computes with has been placed for it."""
        return self.demand is None or self.placed == self.demand.weights


class EngineProcess(ServiceProcess):
    """A modelled engine: a program like others, which keeps its turn until it is asked for it."""
