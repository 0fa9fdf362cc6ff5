"""What samples say of jobs adds up, from a job's first sample on."""

from __future__ import annotations

from carpool.core.model import Usage
from carpool.daemon.jobs.info import job_info
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.telemetry.ungated_processes import BusyTimes
from carpool.protocol.api import SubmitRequest
from carpool.telemetry.samples import CapabilityLevel, ProcessMemory, Sample

SECOND = 1_000_000


def sample(*processes: ProcessMemory) -> Sample:
    return Sample(0, CapabilityLevel.BASIC, processes=processes)


def job_with_turns(turn_s: int) -> tuple[JobRecord, BusyTimes]:
    job = JobRecord(3, 0, 0, SubmitRequest(["true"], "/", {}), None, 0, usage=Usage(device_us=turn_s * SECOND))
    jobs = JobTable()
    jobs.live[3] = job
    return job, BusyTimes(jobs)


def test_all_processes_of_a_job_count_from_its_first_sample_on() -> None:
    job, busy = job_with_turns(10)
    busy.heard("cuda0", sample(ProcessMemory(100, 1, 3, SECOND)))
    assert (job.busy_us, job_info(job, None).busy_of_us) == (0, 0), "that second was before"
    job.usage = Usage(device_us=14 * SECOND)
    busy.heard("cuda0", sample(ProcessMemory(100, 1, 3, SECOND), ProcessMemory(101, 1, 3, 200_000)))
    busy.heard(
        "cuda0", sample(ProcessMemory(100, 1, 3, None), ProcessMemory(7, 1, None, SECOND), ProcessMemory(8, 1, 9, 5))
    )
    info = job_info(job, None)
    assert (info.busy_us, info.busy_of_us) == (1_200_000, 4 * SECOND)


def test_another_attempt_begins_anew() -> None:
    job, busy = job_with_turns(10)
    for _ in range(2):
        busy.heard("cuda0", sample(ProcessMemory(100, 1, 3, SECOND)))
    job.usage = Usage(device_us=SECOND)
    busy.heard("cuda0", sample(ProcessMemory(200, 1, 3, SECOND)))
    assert (job.busy_us, job.busy_since_us) == (0, SECOND)


def test_a_job_that_is_not_measured_says_nothing() -> None:
    job, busy = job_with_turns(10)
    busy.heard("cuda0", sample(ProcessMemory(100, 1, 3, None)))
    busy.heard("cuda0", Sample(0, CapabilityLevel.BASIC))
    assert (job_info(job, None).busy_us, job_info(job, None).busy_of_us) == (None, 0)
