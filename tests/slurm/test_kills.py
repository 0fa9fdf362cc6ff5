"""Whatever ends while jobs of Slurm's share a device, nothing is left there, and the neighbours compute the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.conftest import Bare
from tests.live import Workload
from tests.tiers import RARER_WAY

if TYPE_CHECKING:
    from tests.slurm.conftest import Sites
    from tests.slurm.site import Site, SlurmJob

from carpool.daemon.system.processes import parent_of

#: Two of them need more than the device has.
BALLAST = {"BALLAST_MIB": "49"}
STAYS = "tests/slurm/test_suspended.py::test_a_suspended_job_leaves_its_device"


def ancestor(job: SlurmJob, above: int) -> int:
    """0: the process that has joined; 1: the batch script; 2: slurmstepd."""
    pid = job.job().pid or 0
    for _ in range(above):
        pid = parent_of(pid)
    assert pid > 1
    return pid


def kill_at(above: int) -> Callable[[Site, SlurmJob], None]:
    return lambda _site, job: os.kill(ancestor(job, above), signal.SIGKILL)


def again(name: str) -> Callable[[Site, SlurmJob], None]:
    def kill(site: Site, _job: SlurmJob) -> None:
        if name == "slurmctld":
            site.until(lambda: b"batch2" in site.cluster.saved_jobs())  # else Slurm itself forgets the job
        site.cluster.kill(name)
        site.cluster.start(name)

    return kill


def kill_carpool(site: Site, _job: SlurmJob) -> None:
    site.daemons["n1"].kill()
    site.daemons["n1"].start()


#: What is killed; whether the job goes on, and how it ends in Slurm and in Carpool otherwise.
HOPS = [
    pytest.param(kill_at(0), ("FAILED", "failed"), id="task"),
    pytest.param(kill_at(1), ("FAILED", "cancelled"), id="batch script"),  # by the Epilog: Slurm has lost sight of it
    pytest.param(kill_at(2), None, id="slurmstepd"),
    pytest.param(again("n1"), ("COMPLETED", "succeeded"), id="slurmd"),
    pytest.param(again("slurmctld"), ("COMPLETED", "succeeded"), id="slurmctld"),
    pytest.param(kill_carpool, ("COMPLETED", "succeeded"), id="carpool"),
]


@pytest.mark.nightly(RARER_WAY, stays=STAYS)
@pytest.mark.parametrize(("kill", "ends"), HOPS)
def test_a_kill(
    sites: Sites,
    bare: Bare,
    workload: type[Workload],
    tmp_path: Path,
    kill: Callable[[Site, SlurmJob], None],
    ends: tuple[str, str] | None,
) -> None:
    """Of a job without its slurmstepd Slurm learns the end when it asks the node again, which may be much later."""
    site, release = sites(), tmp_path / "release"
    script = workload("steady", ("until", str(release)))
    hit, neighbour = (site.sbatch(script, "--nodelist=n1", "--no-requeue", **BALLAST) for _ in range(2))
    for job in (hit, neighbour):
        job.iterates()
    kill(site, hit)
    neighbour.iterates(20)
    if ends is not None and ends[0] == "FAILED":
        assert (hit.wait(), hit.ended().outcome) == ends
    release.touch()
    result = neighbour.result()
    assert [result] == bare([workload("steady", ("count", str(result["count"])))])
    if ends is None:
        assert hit.ended().outcome == "succeeded"
    else:
        assert (hit.wait(), hit.ended().outcome) == ends
    assert neighbour.ended().outcome == "succeeded"
    site.nothing_left()
