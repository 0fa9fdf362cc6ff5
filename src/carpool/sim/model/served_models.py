"""The services beside a trace: models and engines, requests for them, the workers of models, and the results."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from carpool.core.model import MIB, JobId, Micros
from carpool.sim.model.random_draws import SECOND, exponential
from carpool.sim.model.served_engines import EngineResult, ServedEngine

#: Size of a group in the live runtime.
GROUP_BYTES = 4 * MIB


@dataclass(frozen=True, slots=True)
class ServedModel:
    """Sizes are bytes, times microseconds."""

    name: str  # unique among the models
    weights: int
    compute_us: Micros  # a batch of one request
    arrivals_us: tuple[Micros, ...]  # of its requests, since the beginning of the trace; ascending
    further_us: Micros | None = None  # what each further request of a batch adds; None: as much as the first
    deadline_us: Micros | None = None  # of a request, counted from its arrival
    max_batch: int = 1  # requests
    max_delay_us: Micros = 0  # for which a batch that is not full is waited for
    max_queue: int = 1000  # requests that may wait; those beyond are refused
    priority: int = 0  # as in the protocol: 1 comes first, 0 last; matters where the setting `serving` says so

    def batch_us(self, requests: int) -> Micros:
        """Return how long a batch of so many requests computes, microseconds."""
        further = self.compute_us if self.further_us is None else self.further_us
        return self.compute_us + (requests - 1) * further


@dataclass(frozen=True, slots=True)
class Services:
    """One front and its workers, all of one owner, the same number on every device; and engines."""

    models: tuple[ServedModel, ...]
    workers: int = 3  # per device: one computes, the others have their weights copied meanwhile, or stand by
    activations: int = 0  # bytes that a worker needs in its lane
    owner: JobId = 0
    group: int = GROUP_BYTES  # bytes that travel together; a model has groups of equal size, this one at most
    transfer_us: Micros = 10  # what a group's transfer costs beside its bytes
    engines: tuple[ServedEngine, ...] = ()


def check_services(services: Services, device_memory: int) -> None:
    """Check the services.  Raises ValueError that names the model and the rule."""
    if not (services.models or services.engines):
        raise ValueError("services need at least one model or engine")
    if services.workers < 1 or services.group < 1 or min(services.activations, services.transfer_us) < 0:
        raise ValueError("services need at least one worker per device, groups of at least a byte, and no less than 0")
    names = [model.name for model in services.models]
    if len(set(names)) < len(names):
        raise ValueError("two models have one name; give each its own")
    for model in services.models:
        needed = model.weights + services.activations
        if needed > device_memory:
            raise ValueError(
                f"model {model.name} needs {needed} bytes, weights and activations, and a device has {device_memory}"
            )


def poisson_us(rate: float, until_us: Micros, seed: int) -> tuple[Micros, ...]:
    """Return arrival times at ``rate`` requests per second, independent of each other, from 0 up to ``until_us``."""
    random, times, now = Random(seed), [], 0.0
    while (now := now + exponential(random, SECOND / rate)) < until_us:
        times.append(round(now))
    return tuple(times)


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
        """The number of requests whose outcome is known."""
        return len(self.latencies_us) + self.given_up + self.refused + self.failed

    @property
    def missed(self) -> int:
        """The number of missed deadlines."""
        return self.late + self.given_up


@dataclass(slots=True)
class ServicesResult:
    """Models and engines in the given order; times summed over all devices."""

    models: list[ModelResult]
    engines: list[EngineResult] = field(default_factory=list)
    ended_us: Micros = 0  # the last request was settled
    turns_us: Micros = 0  # services had their devices to themselves
    stalled_us: Micros = 0  # of that: waited for weights, or for memory
