"""The results of requests to services."""

from __future__ import annotations

from dataclasses import dataclass, field

from carpool.core.model import Micros
from carpool.sim.model.served_models import ServedModel


@dataclass(slots=True)
class ModelResult:
    """The requests for one model, each answered, given up, refused or failed."""

    model: ServedModel
    latencies_us: list[Micros] = field(default_factory=list)  # of those answered: from arrival to answer; in that order
    late: int = 0  # of those answered: after their deadline
    given_up: int = 0  # could not be answered by their deadline any more, so were not computed
    refused: int = 0  # too many waited
    failed: int = 0  # no memory for them
    batches: int = 0  # that were computed
    copies: int = 0  # of the weights to a device
    copied_bytes: int = 0

    @property
    def settled(self) -> int:
        return len(self.latencies_us) + self.given_up + self.refused + self.failed

    @property
    def missed(self) -> int:
        """The number of missed deadlines."""
        return self.late + self.given_up


@dataclass(slots=True)
class ServicesResult:
    """Models in the given order; times summed over all devices."""

    models: list[ModelResult]
    ended_us: Micros = 0  # the last request was settled
    turns_us: Micros = 0  # services had their devices to themselves
    stalled_us: Micros = 0  # of that: waited for weights, or for memory
