"""Unmodified scripts as jobs of a real Slurm: bit-identical, however many share a device."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool.daemon.system.processes import start_time
from carpool.protocol.api import SubmitRequest
from tests.e2e.conftest import Bare
from tests.e2e.test_identical import TOGETHER
from tests.live import PATIENCE_S, Workload
from tests.slurm.site import SHARD
from tests.tiers import FAMILY, RARER_WAY

if TYPE_CHECKING:
    from tests.slurm.conftest import Sites

#: Two of them need more than a device has.
BALLAST = {"BALLAST_MIB": "56"}
STAYS = "test_batch_scripts_and_steps_share_a_device"


def test_batch_scripts_and_steps_share_a_device(sites: Sites, bare: Bare, workload: type[Workload]) -> None:
    site = sites()
    meeting = site.daemons["n1"].meeting
    together = BALLAST | {"MEETING_POINT": str(meeting.path)}
    scripts = [workload("adam"), workload("sgd"), workload("gan")]
    batch = site.sbatch(scripts[0], "--nodelist=n1", "--job-name=it's adam", "--time=30", "--mem=90", **together)
    step, out = site.srun(scripts[1], "--nodelist=n1", "--job-name=step", **together)
    other = site.sbatch(scripts[2], "--nodelist=n2", **BALLAST)
    expected = bare(scripts)
    meeting.begin(2, together=True)
    _, errors = step.communicate(timeout=PATIENCE_S)
    assert (step.returncode, errors) == (0, ""), f"{errors}{site.story()}"
    assert [batch.result(), json.loads(out.read_text()), other.result()] == expected
    job = batch.ended()
    assert (job.outcome, job.name, job.device) == ("succeeded", f"it's adam-{batch.id}", "host0")
    assert job.time_us is not None and 25 * 60e6 < job.time_us < 35 * 60e6
    assert job.moved.out_bytes > 0, "nothing was moved, though both did not fit"
    assert other.ended().outcome == "succeeded"
    assert [len(daemon.client.jobs()) for daemon in site.daemons.values()] == [2, 1]
    site.nothing_left()


@pytest.mark.nightly(FAMILY, stays=STAYS)
@pytest.mark.parametrize("lists", [TOGETHER[:2], TOGETHER[2:]], ids=lambda lists: f"{lists[0][0]}, {lists[1][0]}, ...")
def test_the_conformance_workloads(sites: Sites, bare: Bare, workload: type[Workload], lists: list[list[str]]) -> None:
    """Each job runs several scripts, one after another, beside another one."""
    site = sites(device="host:512MiB")
    meeting = site.daemons["n1"].meeting
    point = {"MEETING_POINT": str(meeting.path)}
    jobs = [site.sbatch(workload("several", tuple(names)), "--nodelist=n1", **point) for names in lists]
    expected = [bare([workload.named(name) for name in names]) for names in lists]
    meeting.begin(len(jobs), together=True)
    for job, names, alone in zip(jobs, lists, expected, strict=True):
        pairs = zip(names, job.result(), alone, strict=True)
        assert [name for name, result, one in pairs if result != one] == []
        assert job.ended().switches > 2 * len(names)
    site.nothing_left()


@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_tasks_of_a_step_are_jobs_of_one_name(sites: Sites, bare: Bare, workload: type[Workload]) -> None:
    """An inner `srun` of a batch script: three tasks, which need more together than the device has."""
    site = sites()
    words = shlex.join([*workload("sgd").command(site.root / "task")[:2], "TASK"]).replace("TASK", "$OUT-$SLURM_PROCID")
    script = f"export OUT={site.root}/task\nsrun --ntasks=3 --overlap bash -c '{words}'"
    job = site.sbatch(script, "--nodelist=n1", "--ntasks=3", "--job-name=three", **BALLAST)
    assert job.wait() == "COMPLETED", site.story()
    results = [json.loads((site.root / f"task-{rank}").read_text()) for rank in range(3)]
    assert results == bare([workload("sgd")]) * 3
    assert [(one.name, one.outcome) for one in job.jobs()] == [(f"three-{job.id}", "succeeded")] * 3


@pytest.mark.nightly(RARER_WAY, stays=STAYS)
@pytest.mark.parametrize("shard", [SHARD, ""], ids=["shard", "no shard"])
def test_a_job_that_another_one_submits(sites: Sites, bare: Bare, workload: type[Workload], shard: str) -> None:
    """It has the environment of its submitter, and is a job of its own; without a shard it is none of Carpool's."""
    site = sites()
    inner = site.root / "inner"
    words = shlex.join(workload("adam").command(inner))
    nested = f"sbatch --wait {shard} --job-name=nested --output={site.root}/log-nested --wrap {shlex.quote(words)}"
    before = shlex.join(workload("sgd").command(site.root / "outer"))
    outer = site.sbatch(f"{before}\n{nested}", "--nodelist=n1")
    assert outer.wait() == "COMPLETED", site.story()
    assert json.loads(inner.read_text()) == bare([workload("adam")])[0]
    assert "carpool" not in (site.root / "log-nested").read_text()
    jobs = [job for daemon in site.daemons.values() for job in daemon.client.jobs()]
    assert len(outer.jobs()) == 1
    assert len([job for job in jobs if job.name.startswith("nested-")]) == len(jobs) - 1 == bool(shard)


@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_a_job_that_a_job_of_carpool_submits(sites: Sites, bare: Bare, workload: type[Workload]) -> None:
    """``CARPOOL_JOB`` and the like do not reach it."""
    site = sites()
    out = site.root / "inner"
    wrapped = shlex.join(workload("adam").command(out))
    words = ["sbatch", "--wait", SHARD, "--nodelist=n1", f"--output={site.root}/log-inner", "--wrap", wrapped]
    daemon = site.daemons["n1"]
    number = daemon.client.submit(SubmitRequest(argv=words, cwd=str(site.root), env=site.cluster.environment))
    info = daemon.client.wait(number, PATIENCE_S)
    assert info.outcome == "succeeded", site.story()
    assert json.loads(out.read_text()) == bare([workload("adam")])[0]
    (inner,) = [job for job in daemon.client.jobs() if job.joined]
    assert (inner.outcome, inner.launcher) == ("succeeded", "slurm 1")


@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_what_a_job_leaves_behind_is_cancelled(sites: Sites, workload: type[Workload], tmp_path: Path) -> None:
    """A process that has left its parents: `proctrack/linuxproc` does not see it any more."""
    site = sites()
    words = shlex.join(workload("steady", ("until", str(tmp_path / "never"))).command(tmp_path / "left"))
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    job = site.sbatch(f"(setsid setsid {words} >{site.root}/log-left 2>&1 &) \nread line <{ready}", "--nodelist=n1")
    job.iterates()
    pid = job.job().pid
    assert pid is not None
    ready.write_text("\n")
    assert job.wait() == "COMPLETED"
    assert job.ended().outcome == "cancelled"
    site.until(lambda: not start_time(pid))
    site.nothing_left()
