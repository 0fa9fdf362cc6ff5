"""A search for hyper-parameters as in Salus (Yu and Chowdhury, MLSys 2020, section 5.2.2): one model, many settings.

The paper searches with resnet50 (batches of 50) and with superres (batches of 128), 300 jobs each, all submitted at
once.  How long a job takes is an assumption: a few minutes, with little variation.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from carpool.sim.generators.parameters import choice, count, number
from carpool.sim.generators.workloads import workload
from carpool.sim.model.random_draws import MINUTE, uniform
from carpool.sim.model.trace_job import TraceJob


@dataclass(frozen=True, slots=True)
class Sweep:
    """Many trials of one model, all submitted at once."""

    jobs: int = count(300, "how many trials")
    model: str = choice("resnet50_50", "what is trained", ("resnet50_50", "superres_128"))
    mean_minutes: float = number(3.0, "mean length of a trial alone")
    spread: float = number(0.1, "lengths vary by at most this share, evenly", least=0.0, most=0.99)
    utilization: float = number(1.0, "share of the device that a trial uses alone", most=1.0)

    def make(self, random: Random) -> list[TraceJob]:
        model = workload(self.model)
        return [model.job(number, 0, self._length(random), self.utilization) for number in range(self.jobs)]

    def _length(self, random: Random) -> float:
        return self.mean_minutes * MINUTE * uniform(random, 1.0 - self.spread, 1.0 + self.spread)
