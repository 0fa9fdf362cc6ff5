"""Inference services side by side, as in Salus (Yu and Chowdhury, MLSys 2020, section 5.3): 42 models on 16 GB.

Each job loads a model and then answers one request after the other.  An iteration is a request: ``request_ms`` of
device time and then a pause on the host, so that the job computes for ``busy`` of its time.  Memory is measured; how
long a request takes, how often one comes and how much of the device it fills are assumptions.  The 42 models fit on
16 GiB when they share one lane: 9.9 GiB persistent and 3.3 GiB ephemeral.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from carpool.sim.generators.parameters import count, number
from carpool.sim.generators.workloads import inference, millionths
from carpool.sim.model.random_draws import MINUTE, uniform
from carpool.sim.model.trace_job import TraceJob


@dataclass(frozen=True, slots=True)
class Inference:
    """Services that are always present and compute little."""

    jobs: int = count(42, "how many services; beyond 42 the models repeat")
    minutes: float = number(60.0, "how long each service lives")
    request_ms: float = number(10.0, "device time of one request", above=0.001)
    busy: float = number(0.01, "share of its time for which a service computes", most=1.0)
    utilization: float = number(0.25, "share of the device that a request uses alone", most=1.0)
    within_s: float = number(0.0, "services start within this time, evenly; 0: all at once", least=0.0)

    def make(self, random: Random) -> list[TraceJob]:
        starts = sorted(round(uniform(random, 0.0, self.within_s) * 1_000_000) for _ in range(self.jobs))
        return [self._job(number, start) for number, start in enumerate(starts)]

    def _job(self, number: int, submit_us: int) -> TraceJob:
        model = inference()[number % len(inference())]
        device = max(1, round(self.request_ms * 1000))
        host = round(device / self.busy) - device
        requests = max(1, round(self.minutes * MINUTE / (device + host)))
        return TraceJob(
            id=f"{number}-{model.name}",
            submit_us=submit_us,
            duration_us=requests * (device + host),
            iterations=requests,
            iteration_us=device,
            host_us=host,
            persistent=model.persistent,
            ephemeral=model.ephemeral,
            utilization_ppm=millionths(self.utilization),
            model=model.name,
        )
