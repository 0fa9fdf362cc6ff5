"""Jobs that arrive independently of each other, with heavy-tailed lengths."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from carpool.sim.generators.parameters import choice, count, number
from carpool.sim.generators.workloads import millionths, training
from carpool.sim.model.random_draws import MINUTE, SECOND, arrivals, lognormal, pareto, pick, weighted
from carpool.sim.model.trace_job import TraceJob

#: Devices per job and the share of such jobs, rounded from Microsoft's Philly trace (Jeon et al., USENIX ATC 2019).
PHILLY_GPUS = ((1, 0.90), (2, 0.04), (4, 0.05), (8, 0.01))


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent arrivals, heavy-tailed lengths."""

    jobs: int = count(100, "how many jobs")
    load: float = number(0.8, "work that arrives, as a share of what the devices can do")
    devices: int = count(1, "devices that the load refers to", most=100_000)
    mean_interarrival_s: float | None = number(None, "mean time from one arrival to the next; default: from the load")
    mean_minutes: float = number(60.0, "mean length of a job alone")
    lengths: str = choice("lognormal", "distribution of the lengths", ("lognormal", "pareto"))
    sigma: float = number(1.5, "lognormal: standard deviation of the logarithm", least=0.0, most=5.0)
    exponent: float = number(1.8, "pareto: the smaller, the heavier the tail", above=1.0)
    gpus: str = choice("1", "devices of a job; philly: 90 % one, 4 % two, 5 % four, 1 % eight", ("1", "philly"))
    memory: str = choice("none", "salus: memory and iterations of a training workload of Salus", ("none", "salus"))
    utilization: float = number(1.0, "share of the device that a job uses alone", most=1.0)

    def make(self, random: Random) -> list[TraceJob]:
        times = self.arrivals(random)
        return [self._job(random, number, time) for number, time in enumerate(times)]

    def arrivals(self, random: Random) -> list[int]:
        return arrivals(random, self.jobs, self.interarrival_us)

    @property
    def interarrival_us(self) -> float:
        """The mean interarrival time; a load counts each job with its length and its devices."""
        if self.mean_interarrival_s is not None:
            return self.mean_interarrival_s * SECOND
        width = sum(gpus * share for gpus, share in self._widths)
        return self.mean_minutes * MINUTE * width / (self.load * self.devices)

    @property
    def _widths(self) -> tuple[tuple[int, float], ...]:
        return PHILLY_GPUS if self.gpus == "philly" else ((1, 1.0),)

    def _job(self, random: Random, number: int, submit_us: int) -> TraceJob:
        length = self._length(random)
        gpus = weighted(random, self._widths)
        if self.memory == "none":
            return TraceJob(
                str(number), submit_us, max(1, round(length)), gpus, utilization_ppm=millionths(self.utilization)
            )
        return pick(random, training()).job(number, submit_us, length, self.utilization, gpus)

    def _length(self, random: Random) -> float:
        mean = self.mean_minutes * MINUTE
        if self.lengths == "pareto":
            return pareto(random, mean, self.exponent)
        return lognormal(random, mean, self.sigma)
