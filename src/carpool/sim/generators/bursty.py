"""Like `poisson`, but jobs come in bursts: a two-state Markov process switches the arrivals on and off."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from carpool.sim.generators.parameters import number
from carpool.sim.generators.poisson import Poisson
from carpool.sim.model.random_draws import MINUTE, exponential


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
