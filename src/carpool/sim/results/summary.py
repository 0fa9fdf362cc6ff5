"""The figures of one simulation: exact in integers up to the last division."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from carpool.core.model import GIB, Micros, Outcome
from carpool.core.stats import percentile_s
from carpool.core.units import SECOND_US
from carpool.sim.model.options import Options
from carpool.sim.model.result import JobResult, Result
from carpool.sim.model.trace_job import WHOLE_PPM
from carpool.sim.services.summary import ServicesSummary, summarize_services

#: Real time that is assumed for a simulation that takes no measurable time.
LEAST_WALL_S = 1e-9


@dataclass(frozen=True, slots=True)
class HostSummary:
    """The cores of each machine, and by number of busy jobs what these get done together, in units of one alone.

    ``measured``: the day of their calibration; empty: the speeds are assumed.
    """

    cores: int
    speeds: dict[int, float]
    measured: str


@dataclass(frozen=True, slots=True)
class Summary:
    """Seconds, counts and shares.  None: no job to which the figure applies.

    Means and percentiles are over the jobs that have succeeded.  Refused jobs count only in `jobs`, `refused` and
    `deadlines_missed`; failed ones count towards the makespan, the service and the preemptions.
    """

    policy: str
    allocation: str  # "devices" | "lanes"
    devices: int
    jobs: int
    succeeded: int
    failed: int  # ended in any other way, with all their attempts
    refused: int
    first_refusal: str | None  # why the first of them was refused
    avg_jct_s: float | None  # job completion time: from submission to end
    median_jct_s: float | None
    p95_jct_s: float | None  # percentiles interpolate linearly between neighbours
    p99_jct_s: float | None
    makespan_s: float  # from the first submission to the last end
    avg_queueing_s: float | None  # queueing delay: from submission to the first time on a device
    avg_waiting_s: float | None  # all time without devices (lanes: without the turn)
    preemptions: int
    service_s: float  # for which jobs held their devices or turns, summed over all of them
    utilization: float  # share of devices × makespan in use
    offloads: int  # times a job's memory was moved to the host store
    moved_gib: float  # to the host store and back
    moving_s: float  # time that this took, summed over all jobs
    moving: float  # the same as a share of devices × makespan
    out_of_memory: int  # attempts that ended because memory was denied
    recovered: int  # jobs that have run out of memory, and succeeded later
    lost_s: float  # service that was lost by that, summed over all jobs
    occupied_s: float  # time of devices in which at least one job computed, summed over the devices
    deadlines_missed: int | None  # jobs that did not succeed in time; None: no job has a deadline
    services: ServicesSummary | None  # None: no services
    host: HostSummary | None  # None: no machine is modelled, so nothing slows work on a host
    events: int  # handled by the core
    jobs_per_second_simulated: float  # real time, the only figure that differs from one run to the next


def summarize(result: Result) -> Summary:
    """Compute the summary; takes a few seconds for a million jobs."""
    outcomes = Counter(map(attrgetter("outcome"), result.jobs))
    succeeded = [job for job in result.jobs if job.outcome is Outcome.SUCCEEDED]
    ran = [job for job in result.jobs if job.outcome is not Outcome.REFUSED]
    jcts = sorted(map(attrgetter("jct_us"), succeeded))
    makespan = makespan_us(result)

    def total(field: str) -> int:
        return sum(map(attrgetter(field), ran))

    return Summary(
        policy=result.options.settings.policy,
        allocation=result.options.settings.allocation.value,
        devices=result.options.devices,
        jobs=len(result.jobs),
        succeeded=len(succeeded),
        failed=len(ran) - len(succeeded),
        refused=outcomes[Outcome.REFUSED],
        first_refusal=next(
            (f"job {job.job.id} {job.reason}" for job in result.jobs if job.outcome is Outcome.REFUSED), None
        ),
        avg_jct_s=_mean_s(jcts),
        median_jct_s=percentile_s(jcts, 50),
        p95_jct_s=percentile_s(jcts, 95),
        p99_jct_s=percentile_s(jcts, 99),
        makespan_s=makespan / SECOND_US,
        avg_queueing_s=_mean_s([*map(attrgetter("queueing_us"), succeeded)]),
        avg_waiting_s=_mean_s([*map(attrgetter("waiting_us"), succeeded)]),
        preemptions=total("preemptions"),
        service_s=total("service_us") / SECOND_US,
        utilization=_share(result, result.busy_us, makespan),
        offloads=total("offloads"),
        moved_gib=total("moved_bytes") / GIB,
        moving_s=total("moving_us") / SECOND_US,
        moving=_share(result, total("moving_us"), makespan),
        out_of_memory=total("out_of_memory"),
        recovered=sum([job.out_of_memory > 0 for job in succeeded]),
        lost_s=total("lost_us") / SECOND_US,
        occupied_s=result.occupied_us / SECOND_US,
        deadlines_missed=_missed(result.jobs),
        services=None if result.services is None else summarize_services(result, result.services),
        host=_host(result.options),
        events=result.events,
        jobs_per_second_simulated=len(result.jobs) / max(result.wall_s, LEAST_WALL_S),
    )


def _host(options: Options) -> HostSummary | None:
    cores = options.cores
    if cores is None:
        return None
    return HostSummary(cores.count, {jobs: speed / WHOLE_PPM for jobs, speed in cores.points}, cores.measured)


def _share(result: Result, part_us: Micros, makespan: Micros) -> float:
    """Return a time as a share of all time of all devices."""
    return part_us / (result.options.devices * makespan) if makespan else 0.0


def makespan_us(result: Result) -> Micros:
    """Return the time from the first submission to the last end of jobs that were not refused; 0 if there are none."""
    ran = [job for job in result.jobs if job.outcome is not Outcome.REFUSED]
    if not ran:
        return 0
    return max([job.ended_us for job in ran]) - min([job.job.submit_us for job in ran])


def _mean_s(values_us: Sequence[Micros]) -> float | None:
    return sum(values_us) / (len(values_us) * SECOND_US) if values_us else None


def _missed(jobs: Sequence[JobResult]) -> int | None:
    """Count the jobs that did not succeed within their deadline, which counts from their submission."""
    limits = [(job, job.job.deadline_us) for job in jobs if job.job.deadline_us is not None]
    if not limits:
        return None
    return sum(job.outcome is not Outcome.SUCCEEDED or job.jct_us > limit for job, limit in limits)
