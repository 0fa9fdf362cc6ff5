"""Containers that are killed and cancelled, daemons that are killed: neighbours are identical, nothing stays behind."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.containers.running import MAPPED, ended, until
from tests.e2e.watching import nothing_left
from tests.live import PATIENCE_S

if TYPE_CHECKING:
    from tests.containers.running import Containers
    from tests.e2e.conftest import Bare, Daemons
    from tests.live import Workload

STAYS = "tests/containers/test_containers.py::test_containers_compute_what_they_compute_alone_beside_a_job_outside"
pytestmark = pytest.mark.nightly("a container or its daemon is killed: half a minute of PyTorch", stays=STAYS)
KINDS = pytest.mark.parametrize("host_uid", [MAPPED, None])
DEVICE, BALLAST_MIB = "host:96MiB", 49
ADDS = "import torch; print(float(torch.ones(100000).sum()))"


@KINDS
def test_a_container_that_is_killed_in_its_turn_frees_the_lane(
    host_uid: int | None, bare: Bare, daemons: Daemons, workload: type[Workload], containers: Containers
) -> None:
    daemon, never = daemons(policy="fifo"), str(containers.shared / "never")
    killed = containers.start(daemon, workload("holder", (never,)), host_uid)
    job = killed.job(daemon)
    until(daemon, "GrantTurn", job.id)
    neighbour = containers.start(daemon, workload("adam"), host_uid)
    until(daemon, "TurnWanted", neighbour.job(daemon).id)
    pid = daemon.client.job(job.id).pid
    assert pid == killed.pid()
    os.kill(pid, signal.SIGKILL)
    assert neighbour.result(daemon) == bare([workload("adam")])[0]
    assert ended(daemon, neighbour.job(daemon).id).outcome == "succeeded"
    info = ended(daemon, job.id)
    assert (info.outcome, info.signal) == ("failed", signal.SIGKILL)
    nothing_left(daemon)


@KINDS
def test_cancelling_ends_a_container_whose_first_process_does_not_see_sigterm(
    host_uid: int | None, daemons: Daemons, workload: type[Workload], containers: Containers
) -> None:
    daemon, never = daemons(), str(containers.shared / "never")
    container = containers.start(daemon, workload("holder", (never,)), host_uid)
    job = container.job(daemon)
    until(daemon, "GrantTurn", job.id)
    daemon.client.cancel(job.id)
    assert ended(daemon, job.id).outcome == "cancelled"
    container.end()
    assert container.process.returncode == 128 + signal.SIGKILL
    nothing_left(daemon)


@KINDS
def test_containers_go_on_after_kills_of_the_daemon(
    host_uid: int | None, bare: Bare, daemons: Daemons, workload: type[Workload], containers: Containers
) -> None:
    daemon, release = daemons(DEVICE), containers.shared / "release"
    script = workload("steady", ("until", str(release)))
    running = []
    for _ in range(2):
        running.append(containers.start(daemon, script, host_uid, ballast_mib=BALLAST_MIB))
        until(daemon, "Attached", running[-1].job(daemon).id)
        daemon.kill()
        daemon.start()
    late = containers.start(daemon, workload("adam"), host_uid)  # of the third daemon
    release.touch()
    results = [container.result(daemon) for container in running]
    assert results == bare([workload("steady", ("count", str(result["count"]))) for result in results])
    assert late.result(daemon) == bare([workload("adam")])[0]
    assert {ended(daemon, one.job(daemon).id).outcome for one in (*running, late)} == {"succeeded"}


def test_one_that_waits_goes_on_alone_when_the_home_of_its_daemon_is_removed(
    daemons: Daemons, workload: type[Workload], containers: Containers
) -> None:
    """What is mounted stays there when it has been removed outside."""
    daemon = daemons()
    holder = daemon.submit(workload("holder", (str(containers.shared / "never"),)), hints={"exclusive": True})
    until(daemon, "GrantTurn", holder.id)
    container = containers.start(daemon, ["python3", "-c", ADDS], MAPPED)
    container.job(daemon)
    daemon.kill()
    joining = daemon.home / "joining"
    (joining / "session.sock").unlink()
    joining.rmdir()
    out, errors = container.process.communicate(timeout=PATIENCE_S)
    assert (out, len(errors.splitlines())) == ("100000.0\n", 1), errors
    assert "runs without Carpool" in errors


def test_a_daemon_that_serves_one_user_says_so_to_others(daemons: Daemons, containers: Containers) -> None:
    daemon = daemons()
    (daemon.home / "joining" / "session.sock").chmod(0o600)  # as that of an ordinary user's daemon
    container = containers.start(daemon, ["python3", "-c", ADDS], MAPPED)
    out, errors = container.process.communicate(timeout=PATIENCE_S)
    assert (out, len(errors.splitlines())) == ("100000.0\n", 1), errors
    assert "the daemon serves another user" in errors
    assert daemon.client.jobs() == []


def test_a_container_reaches_nothing_of_the_home_but_the_socket(daemons: Daemons, containers: Containers) -> None:
    daemon = daemons()
    script = (
        "import os; print(sorted(os.listdir('/run/carpool')), sorted(os.listdir('/opt/carpool')), "
        f"os.path.exists({str(daemon.home)!r}), os.access('/run/carpool', os.W_OK))"
    )
    container = containers.start(daemon, ["python3", "-c", script])
    out, errors = container.process.communicate(timeout=PATIENCE_S)
    assert (out, errors) == ("['session.sock'] ['__init__.py', '_native', 'runtime'] False False\n", "")
