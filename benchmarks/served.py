"""What the simulations of services have in common: models, a link, and requests.

Nothing here is measured where it runs.  The link and the three networks are those of `bench_grouping` (a V100); weights
and activations of the 42 models are Salus's (P100).  How long those compute for a request is *derived*: a third of a
training iteration, forward being a third of forward and backward, by the line through the two smaller batches that
were measured; 10 ms for the three networks of which no iteration was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.bench_grouping import NETWORKS, V100
from carpool.core.model import Micros
from carpool.sim.driver import simulate
from carpool.sim.generators.parameters import inference, training
from carpool.sim.model.options import Options
from carpool.sim.model.result import Result
from carpool.sim.model.served_models import GROUP_BYTES, ServedModel, Services, poisson_us
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.services.summary import ServicesSummary, summarize_services

SIMULATED = "simulated"
UNMEASURED_US = 10_000
RATE = V100.link.rate // 1_000_000  # bytes per microsecond
TRANSFER_US = V100.link.transfer_ns // 1000


@dataclass(frozen=True, slots=True)
class Kind:
    """A model without its requests."""

    name: str
    weights: int
    compute_us: Micros
    activations: int = 0
    batch: int = 8

    @property
    def copy_us(self) -> Micros:
        return -(-self.weights // RATE) + -(-self.weights // GROUP_BYTES) * TRANSFER_US

    def served(self, arrivals_us: tuple[Micros, ...], **limits: Any) -> ServedModel:
        return ServedModel(self.name, self.weights, self.compute_us, arrivals_us, **limits)


def networks() -> list[Kind]:
    """ResNet-152, Inception-v3 and BERT-base; one request is a batch of 8."""
    return [Kind(each.name, sum(work.size for work in each.works), each.ready_ns // 1000) for each in NETWORKS]


def salus() -> list[Kind]:
    """The 42 of Salus's section 5.3: 14 networks, batches of 1, 5 and 10; one request is a batch."""
    kinds = []
    for workload in inference():
        name, _, batch = workload.name.rpartition("_")
        compute_us = _forward_us(name, int(batch))
        kinds.append(Kind(workload.name, workload.persistent, compute_us, workload.ephemeral, int(batch)))
    return kinds


def _forward_us(network: str, batch: int) -> Micros:
    points = []
    for workload in training():
        name, _, size = workload.name.rpartition("_")
        if name == network:
            points.append((int(size), workload.iteration_us))
    (small, least), (large, most), _ = points
    if least == most:  # the generators' stand-in for what was not measured
        return UNMEASURED_US
    per_item = (most - least) / (large - small)
    return round((least + (batch - small) * per_item) / 3)


def poisson(kinds: Sequence[Kind], shares: Sequence[float], load: float, requests: int) -> list[tuple[Micros, ...]]:
    """Arrivals of each model, about so many in all: together they compute for ``load`` of the time.

    ``shares``: of the requests, in any unit.
    """
    total = sum(shares)
    mean_us = sum(kind.compute_us * share for kind, share in zip(kinds, shares, strict=True)) / total
    rate = load * 1e6 / mean_us  # per second
    until_us = round(requests / rate * 1e6)
    return [poisson_us(rate * share / total, until_us, seed) for seed, share in enumerate(shares)]


def serve(services: Services, jobs: Sequence[TraceJob] = (), **options: Any) -> tuple[Result, ServicesSummary]:
    result = simulate(jobs, Options(services=services, restore_bytes_per_us=RATE, offload_bytes_per_us=RATE, **options))
    assert result.services is not None
    return result, summarize_services(result, result.services)


def milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)
