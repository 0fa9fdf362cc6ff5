"""What Slurm does to a job that runs: it is suspended, resumed, cancelled; its neighbours go on, and outcomes agree."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool.protocol.api import JobInfo
from tests.e2e.conftest import Bare
from tests.e2e.watching import process_state
from tests.live import Workload

if TYPE_CHECKING:
    from tests.slurm.conftest import Sites
    from tests.slurm.site import Site, SlurmJob

MIB = 1 << 20
#: From Slurm's order until nothing of the job is on the device, on a machine that has time for it.
OFF_S = 1.0
#: What a busy machine may add.
SLACK_S = 30.0
BALLAST = {"BALLAST_MIB": "49"}


def steady(site: Site, workload: type[Workload], release: Path) -> SlurmJob:
    job = site.sbatch(workload("steady", ("until", str(release))), "--nodelist=n1", **BALLAST)
    job.iterates()
    return job


def is_off(job: JobInfo) -> bool:
    return job.offloaded and not job.holds_turn


def succeed(site: Site, bare: Bare, workload: type[Workload], *jobs: SlurmJob) -> None:
    """With the results of as many iterations alone, and nothing is left of them."""
    for job in jobs:
        result = job.result()
        assert [result] == bare([workload("steady", ("count", str(result["count"])))])
        assert job.ended().outcome == "succeeded"
    site.nothing_left()


def suspend(job: SlurmJob) -> float:
    """Returns how long it took until the job was off its device, in seconds."""
    began = time.monotonic()
    job.site.cluster.command("scontrol", "suspend", job.id)
    job.site.until(lambda: is_off(job.job()))
    return time.monotonic() - began


def test_a_suspended_job_leaves_its_device(sites: Sites, bare: Bare, workload: type[Workload], tmp_path: Path) -> None:
    """Both together need more than the device has; the third job is cancelled in Slurm, and in Carpool."""
    site, release = sites(), tmp_path / "release"
    alone = steady(site, workload, release)
    took_s = suspend(alone)
    assert took_s < OFF_S + SLACK_S
    pid = alone.job().pid
    assert pid is not None
    other = steady(site, workload, release)
    done = alone.job().iterations
    other.iterates(20)
    found = alone.job()
    assert process_state(pid) == "T" and is_off(found) and found.stored_bytes >= 49 * MIB
    assert found.iterations == done and found.reason is not None and "scontrol resume" in found.reason.text
    site.cluster.command("scontrol", "resume", alone.id)
    alone.iterates()
    victim = steady(site, workload, release)
    site.cluster.command("scancel", victim.id)
    assert (victim.wait(), victim.ended().outcome) == ("CANCELLED", "cancelled")
    release.touch()
    succeed(site, bare, workload, alone, other)


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches", stays="test_a_suspended_job_leaves_its_device"
)
def test_a_holder_that_is_suspended_beside_another(
    sites: Sites, bare: Bare, workload: type[Workload], tmp_path: Path
) -> None:
    """Again and again, wherever it is, also in the middle of being moved, and over a kill of Carpool's daemon."""
    site, release = sites(), tmp_path / "release"
    first, second = (steady(site, workload, release) for _ in range(2))
    for round_ in range(4):
        suspend(first)
        if round_ == 2:
            site.daemons["n1"].kill()
            site.daemons["n1"].start()
            site.until(lambda: is_off(first.job()))
        second.iterates(10)
        site.cluster.command("scontrol", "resume", first.id)
        first.iterates()
    release.touch()
    succeed(site, bare, workload, first, second)


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches", stays="test_a_suspended_job_leaves_its_device"
)
def test_one_that_carpool_has_paused_stays_paused_when_slurm_resumes_it(
    sites: Sites, workload: type[Workload], tmp_path: Path
) -> None:
    site, release = sites(), tmp_path / "release"
    job = steady(site, workload, release)
    client = site.daemons["n1"].client
    client.pause(job.job().id)
    suspend(job)
    site.cluster.command("scontrol", "resume", job.id)
    pid = job.job().pid
    assert pid is not None
    site.until(lambda: process_state(pid) != "T")
    site.until(lambda: "carpool resume" in (job.job().reason or pytest.fail("no reason")).text)
    client.resume(job.job().id)
    job.iterates()
    release.touch()
    assert job.result() and job.ended().outcome == "succeeded"


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches", stays="test_a_suspended_job_leaves_its_device"
)
def test_a_suspended_job_is_cancelled(sites: Sites, workload: type[Workload], tmp_path: Path) -> None:
    site = sites()
    job = steady(site, workload, tmp_path / "never")
    suspend(job)
    site.cluster.command("scancel", job.id)
    assert (job.wait(), job.ended().outcome) == ("CANCELLED", "cancelled"), f"{job.job()}{site.story()}"
    site.nothing_left()


@pytest.mark.nightly("a minute: Slurm's time limits are whole minutes", stays="test_a_suspended_job_leaves_its_device")
def test_the_time_limit(sites: Sites, bare: Bare, workload: type[Workload], tmp_path: Path) -> None:
    site = sites()
    job = site.sbatch(workload("steady", ("until", str(tmp_path / "never"))), "--time=1")
    job.iterates()
    other = site.sbatch(workload("adam"))
    assert [other.result()] == bare([workload("adam")])
    assert job.wait() == "TIMEOUT"
    info = job.ended()
    assert (info.outcome, info.signal) == ("timed_out", signal.SIGTERM)
    assert info.reason is not None and info.reason.text == f"slurm {job.id} has reached its time limit"
    site.nothing_left()


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches", stays="test_a_suspended_job_leaves_its_device"
)
def test_a_job_that_waits_for_its_place_is_cancelled(sites: Sites, workload: type[Workload], tmp_path: Path) -> None:
    """It has asked for its device, and another job has that to itself."""
    site, release = sites(), tmp_path / "release"
    holder = site.daemons["n1"].submit(workload("holder", (str(release),)), hints={"exclusive": True})
    site.until(lambda: holder.info().holds_turn)
    job = site.sbatch(workload("adam"), "--nodelist=n1")
    assert job.job().phase == "queued"
    site.cluster.command("scancel", job.id)
    assert (job.wait(), job.ended().outcome) == ("CANCELLED", "cancelled")
    release.touch()
    assert holder.wait().outcome == "succeeded"
