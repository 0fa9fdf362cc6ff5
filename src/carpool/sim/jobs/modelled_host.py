"""A modelled machine: which jobs work on its cores, and how fast.

Jobs work there while they start up and end, in the host time of their iterations, and where they compute on a host
device.  All of them have one speed: what the cores do for so many, divided by what they demand.
"""

from __future__ import annotations

from carpool.core.model import JobId, Micros
from carpool.sim.jobs.modelled_job import SeatedJob
from carpool.sim.model.cores import Cores
from carpool.sim.model.options import Options
from carpool.sim.model.trace_job import WHOLE_PPM


class ModelledHost:
    """A modelled machine.  The speed changes only when a job begins or stops to work on its cores."""

    def __init__(self, cores: Cores) -> None:
        self._cores = cores
        self._speeds: dict[int, int] = {}  # by demand: the same few recur
        self._working: dict[JobId, tuple[SeatedJob, int]] = {}
        self._demand_ppm = 0
        self._speed_ppm = WHOLE_PPM

    def enter(self, job: SeatedJob, demand_ppm: int, now: Micros) -> list[SeatedJob]:
        """Let the job work from now on, with so many millionths of a core.  Returns the jobs whose speed has changed.

        The job itself, which has the present speed now, is not among them.
        """
        changed = self._adapt(demand_ppm, now)
        self._working[job.number] = job, demand_ppm
        job.works_at(self._speed_ppm, now)
        return changed

    def leave(self, job: SeatedJob, now: Micros) -> list[SeatedJob]:
        """Let the job stop working.  Returns the other jobs whose speed has changed."""
        _, demand_ppm = self._working.pop(job.number)
        return self._adapt(-demand_ppm, now)

    def _adapt(self, more_ppm: int, now: Micros) -> list[SeatedJob]:
        self._demand_ppm += more_ppm
        speed = self._speeds.get(self._demand_ppm)
        if speed is None:
            speed = self._speeds[self._demand_ppm] = self._cores.speed_ppm(self._demand_ppm)
        if speed == self._speed_ppm:
            return []
        self._speed_ppm = speed
        return [job for job, _ in self._working.values() if job.works_at(speed, now)]


def hosts_of(options: Options) -> list[ModelledHost]:
    """Return the machine of each device; none if machines are not modelled."""
    if options.cores is None:
        return []
    each = options.devices_per_host or options.devices
    hosts = [ModelledHost(options.cores) for _ in range(0, options.devices, each)]
    return [hosts[device // each] for device in range(options.devices)]
