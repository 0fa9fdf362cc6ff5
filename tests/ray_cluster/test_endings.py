"""Workers that are killed, nodes that go, daemons that are killed: nothing stays behind, neighbours are identical."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.watching import last_event, nothing_left
from tests.live import BareRuns, Workload
from tests.ray_cluster.nodes import TASK, Node, Nodes, get, restarted
from tests.ray_cluster.workers import touched

KILLED = "a worker of Ray's, a daemon or a node is killed: half a minute of PyTorch"
STAYS = "tests/ray_cluster/test_actors.py::test_actors_are_jobs_of_their_nodes_and_compute_what_they_compute_alone"
pytestmark = pytest.mark.nightly(KILLED, stays=STAYS)
BALLAST = {"env_vars": {"BALLAST_MIB": "49"}}


def holder(cluster: Nodes, node: Node, restarts: int = 0) -> tuple[Any, int, int]:
    """An actor that trains until it is killed, and holds the turn; its process and its job."""
    actor = cluster.actor(node, BALLAST, name="holder", restarts=restarts)
    (pid,) = get(actor.pid.remote())
    cluster.start(actor, Workload("holder", (str(cluster.out()),)))
    job = node.job_of(pid).id
    node.until("GrantTurn", job)
    return actor, pid, job


def neighbour(cluster: Nodes, node: Node, name: str = "adam") -> tuple[Any, Any]:
    actor = cluster.actor(node, BALLAST, name="neighbour")
    return actor, cluster.start(actor, Workload(name))


@pytest.mark.parametrize("by", ["ray.kill", "SIGKILL"])
def test_a_killed_worker_leaves_nothing(cluster: Nodes, bare: BareRuns, by: str) -> None:
    import ray

    node = cluster.nodes[0]
    actor, pid, job = holder(cluster, node)
    beside, results = neighbour(cluster, node)
    if by == "ray.kill":
        ray.kill(actor)
    else:
        os.kill(pid, signal.SIGKILL)
    assert node.ended(job).outcome == "failed"
    assert get(results) == [bare.result(Workload("adam"))]
    ray.kill(beside)
    nothing_left(node.daemon)  # type: ignore[arg-type]
    assert cluster.warnings() == []


def test_a_restarted_actor_is_a_new_job(cluster: Nodes, bare: BareRuns) -> None:
    node = cluster.nodes[0]
    actor, pid, job = holder(cluster, node, restarts=1)
    _, results = neighbour(cluster, node)
    os.kill(pid, signal.SIGKILL)
    node.ended(job)
    now = restarted(actor)
    again = cluster.start(actor, Workload("sgd"))
    assert get(results, again) == [bare.result(Workload(name)) for name in ("adam", "sgd")]
    assert node.job_of(now).id != job
    assert now != pid


def test_a_node_that_goes_leaves_nothing_there_and_the_other_goes_on(cluster: Nodes, bare: BareRuns) -> None:
    stays, goes = cluster.nodes[0], cluster.add()
    _, _, job = holder(cluster, goes)
    _, results = neighbour(cluster, stays)
    cluster.remove(goes)
    assert goes.ended(job).outcome in ("failed", "ended")
    nothing_left(goes.daemon)  # type: ignore[arg-type]
    goes.daemon.close()
    assert get(results) == [bare.result(Workload("adam"))]


def test_actors_go_on_when_the_daemon_is_killed(cluster: Nodes, bare: BareRuns, tmp_path: Path) -> None:
    node, release = cluster.nodes[0], tmp_path / "release"
    actors = [cluster.actor(node, BALLAST) for _ in range(2)]
    pids = get(*(actor.pid.remote() for actor in actors))
    running = [cluster.start(actor, Workload("steady", ("until", str(release)))) for actor in actors]
    jobs, seen = [node.job_of(pid).id for pid in pids], 0
    for _ in range(2):
        for job in jobs:
            node.until("GrantTurn", job, seen)
        seen = last_event(node.daemon)  # type: ignore[arg-type]
        node.daemon.kill()
        node.daemon.start()
    late, results = neighbour(cluster, node)
    release.touch()
    found = get(*running)
    assert found == [bare.result(Workload("steady", ("count", str(result["count"])))) for result in found]
    assert get(results) == [bare.result(Workload("adam"))]
    assert cluster.warnings() == []
    del late


def test_a_worker_waits_at_its_first_touch_and_not_before(cluster: Nodes, tmp_path: Path) -> None:
    """The actor is there, and answers, while the device is another job's; Ray starts no other worker in its place."""
    node, release = cluster.nodes[0], tmp_path / "release"
    alone = node.daemon.submit_script(Workload("holder", (str(release),)), exclusive=True)
    node.until("GrantTurn", alone.id)
    actor = cluster.actor(node, name="waits")
    (pid,) = get(actor.pid.remote())
    touch = actor.touch.remote()
    job = node.job_of(pid)
    assert job.phase == "queued"
    release.touch()
    assert get(touch, actor.pid.remote()) == [100_000.0, pid]
    alone.result()


def test_an_idle_worker_of_a_task_is_not_in_the_way(cluster: Nodes, bare: BareRuns) -> None:
    """A worker lives on after its task, and is a job as long as it lives; its memory leaves when another needs it."""
    import ray

    node = cluster.nodes[0]
    (pid,) = get(ray.remote(touched).options(**node.options(name=TASK)).remote())
    job = node.job_of(pid)
    _, results = neighbour(cluster, node)
    assert get(results) == [bare.result(Workload("adam"))]
    assert not node.daemon.client.job(job.id).holds_turn
    node.until("Offloaded", job.id)
    os.kill(pid, signal.SIGKILL)  # as Ray does with what is idle for long
    node.ended(job.id)
    cluster.kill_actors()
    nothing_left(node.daemon)  # type: ignore[arg-type]


def test_a_task_that_ends_its_worker_leaves_nothing(cluster: Nodes) -> None:
    import ray

    node = cluster.nodes[0]
    task = ray.remote(max_calls=1)(touched).options(**node.options(name=TASK))
    pids = [get(task.remote())[0] for _ in range(2)]
    assert len(set(pids)) == 2
    assert [node.ended(node.job_of(pid).id).exit_code for pid in pids] == [0, 0]
    nothing_left(node.daemon)  # type: ignore[arg-type]


def test_a_node_without_a_daemon_refuses_workers_with_a_reason(cluster: Nodes) -> None:
    import ray

    node = cluster.add()
    node.daemon.client.shutdown(stop_jobs=True)
    task = ray.remote(touched).options(**node.options(name=TASK))
    with pytest.raises(ray.exceptions.RuntimeEnvSetupError, match="carpool up"):
        get(task.remote())
    cluster.remove(node)
    node.daemon.close()
