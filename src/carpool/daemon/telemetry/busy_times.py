"""Device busy time of jobs, as far as telemetry knows: less than the turn time where jobs load data."""

from __future__ import annotations

from collections import defaultdict

from carpool.core.model import DeviceId, JobId, Micros
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.telemetry.samples import Sample


class BusyTimes:
    """Adds up the busy times that samples report.  A job counts from its first sample on, an adopted job anew."""

    def __init__(self, jobs: JobTable) -> None:
        self._jobs = jobs

    def heard(self, _device: DeviceId, sample: Sample) -> None:
        for number, busy_us in _by_job(sample).items():
            if (job := self._jobs.live.get(number)) is not None:
                _add(job, busy_us)


def _by_job(sample: Sample) -> dict[JobId, Micros]:
    found: dict[JobId, Micros] = defaultdict(int)
    for process in sample.processes or ():
        if process.owner is not None and process.busy_us is not None:
            found[process.owner] += process.busy_us
    return found


def _add(job: JobRecord, busy_us: Micros) -> None:
    """Add busy time; the first sample only starts both figures, and a turn time that has begun anew restarts both."""
    if job.busy_us is None or job.usage.device_us < job.busy_since_us:
        job.busy_us, job.busy_since_us = 0, job.usage.device_us
    else:
        job.busy_us += busy_us
