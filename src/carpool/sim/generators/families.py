"""Families of made-up traces: independent arrivals, bursts, searches for hyper-parameters, Salus's jobs, and services.

The search is that of Salus (Yu and Chowdhury, MLSys 2020, section 5.2.2): one model, many settings, all submitted at
once; how long a job takes is an assumption: a few minutes, with little variation.

The 100 training jobs of Salus (Yu and Chowdhury, MLSys 2020, section 5.2.1 and table 1), as far as they are known.

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

from carpool.sim.generators.parameters import choice, count, inference, millionths, number, training, workload
from carpool.sim.model.random_draws import (
    MINUTE,
    SECOND,
    arrivals,
    exponential,
    lognormal,
    pareto,
    pick,
    uniform,
    weighted,
)
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
        """Return the jobs, by their arrival."""
        times = self.arrivals(random)
        return [self._job(random, number, time) for number, time in enumerate(times)]

    def arrivals(self, random: Random) -> list[int]:
        """Return the times of arrival, microseconds."""
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


@dataclass(frozen=True, slots=True)
class Bursty(Poisson):
    """Arrivals in bursts with pauses in between; the mean over both is that of `poisson`."""

    on_minutes: float = number(60.0, "mean length of a burst", least=0.1)
    off_minutes: float = number(180.0, "mean length of a pause", least=0.1)

    def arrivals(self, random: Random) -> list[int]:
        """Return arrival times; within bursts the rate is higher by the ratio of burst plus pause to burst."""
        mean = self.interarrival_us * self.on_minutes / (self.on_minutes + self.off_minutes)
        times, now = [], 0.0
        burst = exponential(random, self.on_minutes * MINUTE)  # the rest of the present burst
        for _ in range(self.jobs):
            times.append(round(now))
            gap = exponential(random, mean)
            while gap > burst:
                gap -= burst
                now += burst + exponential(random, self.off_minutes * MINUTE)
                burst = exponential(random, self.on_minutes * MINUTE)
            now += gap
            burst -= gap
        return times


@dataclass(frozen=True, slots=True)
class Sweep:
    """Many trials of one model, all submitted at once."""

    jobs: int = count(300, "how many trials")
    model: str = choice("resnet50_50", "what is trained", ("resnet50_50", "superres_128"))
    mean_minutes: float = number(3.0, "mean length of a trial alone")
    spread: float = number(0.1, "lengths vary by at most this share, evenly", least=0.0, most=0.99)
    utilization: float = number(1.0, "share of the device that a trial uses alone", most=1.0)

    def make(self, random: Random) -> list[TraceJob]:
        """Return the trials."""
        model = workload(self.model)
        return [model.job(number, 0, self._length(random), self.utilization) for number in range(self.jobs)]

    def _length(self, random: Random) -> float:
        return self.mean_minutes * MINUTE * uniform(random, 1.0 - self.spread, 1.0 + self.spread)


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
        """Return the jobs, by their arrival."""
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
        """Return the services, by their start."""
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
