"""Processes of jobs that nothing of Carpool is in: who counts as one, and from when to when."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from carpool.core.events import Event, TraitsSeen
from carpool.core.model import Usage
from carpool.daemon.jobs.info import job_info
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.seats.record import tell_constraints
from carpool.daemon.telemetry.ungated_processes import BusyTimes, UngatedProcesses, computes
from carpool.protocol.api import SubmitRequest
from carpool.telemetry.samples import CapabilityLevel, ProcessMemory, Sample

SEATED = 500


class SeatedJob:
    """Job 7 on cuda0 with one process that has a seat."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.over: set[int] = set()
        jobs = JobTable()
        self.job = jobs.live[7] = JobRecord(7, 1000, 1000, SubmitRequest(["true"], "/", {}), None, 0, device="cuda0")
        self.parts = UngatedProcesses(
            jobs, lambda job: {SEATED}, self.events.append, lambda pid, owner: pid not in self.over
        )

    def sample(self, *pids: int, device: str = "cuda0", owner: int | None = 7) -> None:
        self.look(tuple(ProcessMemory(pid, 1, owner) for pid in pids), device)

    def look(self, processes: tuple[ProcessMemory, ...] | None, device: str = "cuda0") -> None:
        self.parts.look(device, Sample(0, CapabilityLevel.BASIC, processes=processes))


@pytest.fixture
def rig() -> SeatedJob:
    return SeatedJob()


def seen(pid: int | None) -> TraitsSeen:
    return TraitsSeen(7, None if pid is None else f"its process {pid} uses the device outside of Carpool")


def test_after_two_samples_and_until_it_is_gone(rig: SeatedJob) -> None:
    rig.sample(SEATED, 600)
    assert not rig.events, "it may just be attaching"
    rig.sample(SEATED, 600)
    rig.sample(SEATED, 600, 601)
    rig.sample(SEATED, 600, 601)
    assert rig.events == [seen(600)]
    rig.sample(SEATED, 601)
    rig.sample(SEATED)
    assert rig.events == [seen(600), seen(601), seen(None)]


def test_one_that_got_a_seat_meanwhile_is_none(rig: SeatedJob) -> None:
    rig.sample(600)
    rig.sample(SEATED)
    rig.sample(600)
    assert not rig.events


def test_samples_that_do_not_say_it_change_nothing(rig: SeatedJob) -> None:
    rig.sample(600)
    rig.look(None)
    rig.sample(600)
    rig.look(None)
    assert rig.events == [seen(600)]


def test_on_a_host_device_the_list_names_all_processes_of_jobs(rig: SeatedJob) -> None:
    """Their shims and children, too: none of them can use the device without Carpool."""
    for _ in range(3):
        rig.parts.look("cuda0", Sample(0, CapabilityLevel.HOST, processes=(ProcessMemory(12, None, 7),)))
    assert not rig.events


def test_who_is_no_such_process(rig: SeatedJob) -> None:
    rig.over.add(601)
    for _ in range(3):
        rig.sample(600, device="cuda1")
        rig.sample(600, owner=None)
        rig.sample(600, owner=8)
        rig.sample(601)
    rig.job.spec = SubmitRequest(["true"], "/", {}, checkpoint=True)
    for _ in range(3):
        rig.sample(600)
    assert not rig.events


def test_it_stands_beside_other_reasons(rig: SeatedJob) -> None:
    rig.job.has_secondary = True
    rig.sample(600)
    rig.sample(600)
    text = "several of its processes use the device, and its process 600 uses the device outside of Carpool"
    assert rig.events[-1] == TraitsSeen(7, text)
    tell_constraints(rig.job, rig.events.append)
    assert len(rig.events) == 2, "once per change"


def test_a_process_that_has_ended_computes_nothing() -> None:
    assert computes(os.getpid(), os.getuid()) and not computes(os.getpid(), os.getuid() + 1)
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not computes(process.pid, os.getuid())
    assert not computes(process.pid, os.getuid())


# What samples say of jobs adds up, from a job's first sample on


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
