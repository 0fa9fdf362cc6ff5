"""The 100 training jobs of Salus (Yu and Chowdhury, MLSys 2020, section 5.2.1 and table 1), as far as they are known.

The workloads are the paper's 45.  Its trace is not at hand; arrivals and lengths are calibrated so that one device
under FIFO gives what table 1 says (minutes; means over the seeds 0 to 199, jobs one after the other, switches free):

    ==========================  =====  =========
    FIFO                        paper  generated
    ==========================  =====  =========
    makespan                    303.4  303.0
    mean queueing delay         167.6  167.9
    mean completion time        170.6  171.0
    95th percentile of it       251.1  253.7
    ==========================  =====  =========

- The jobs together take 3.03 minutes each on average, exactly, whatever the seed: the makespan of FIFO.
- Arrivals are a Poisson process with 30 s in between: the last job then waits as long as the 95th percentile says.
- Jobs wait for more than half of the makespan on average.  That cannot be if long and short jobs come in any order, so
  long ones come rather early: ``early`` mixes a job's rank by length with chance, and 0.39 gives the mean delay.
- Lengths are lognormal; their spread follows from SRTF: 1.1 gives a mean completion time of 52.7 (paper: 53.4) and a
  95th percentile of 216 (paper: 217.0).

Utilization is 1: side by side (PACK) the paper's makespan is only 5 % shorter, so one such job nearly fills a P100.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from carpool.sim.generators.parameters import count, number
from carpool.sim.generators.workloads import training
from carpool.sim.model.random_draws import MINUTE, SECOND, arrivals, lognormal, pick
from carpool.sim.model.trace_job import TraceJob


@dataclass(frozen=True, slots=True)
class Salus:
    """Training jobs as in Salus's evaluation, for one device of 16 GiB."""

    jobs: int = count(100, "how many jobs")
    mean_minutes: float = number(3.03, "mean length of a job alone; the lengths sum up to this times the jobs")
    sigma: float = number(1.1, "spread of the lengths: standard deviation of their logarithm", least=0.0, most=5.0)
    mean_interarrival_s: float = number(30.0, "mean time from one arrival to the next; 0: all at once", least=0.0)
    early: float = number(0.39, "how far long jobs come first: 0 by chance, 1 strictly", least=0.0, most=1.0)
    utilization: float = number(1.0, "share of the device that a job uses alone", most=1.0)

    def make(self, random: Random) -> list[TraceJob]:
        times = arrivals(random, self.jobs, self.mean_interarrival_s * SECOND)
        lengths = self._long_ones_early(random, self._lengths(random))
        return [
            pick(random, training()).job(number, time, length, self.utilization)
            for number, (time, length) in enumerate(zip(times, lengths, strict=True))
        ]

    def _lengths(self, random: Random) -> list[float]:
        """Return lengths in microseconds, scaled to their sum."""
        lengths = [lognormal(random, 1.0, self.sigma) for _ in range(self.jobs)]
        scale = self.jobs * self.mean_minutes * MINUTE / sum(lengths)
        return [length * scale for length in lengths]

    def _long_ones_early(self, random: Random, lengths: list[float]) -> list[float]:
        ranked = sorted(lengths, reverse=True)
        places = [
            (self.early * rank / self.jobs + (1.0 - self.early) * random.random(), rank) for rank in range(self.jobs)
        ]
        return [ranked[rank] for _, rank in sorted(places)]
