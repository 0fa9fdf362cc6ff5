"""Actors on two nodes are jobs of their nodes' daemons: bit-identical, on devices that are too small for them."""

from __future__ import annotations

from tests.live import BareRuns, Workload
from tests.ray_cluster.nodes import Nodes, get

#: The device has room for one of them.
BALLAST = {"env_vars": {"BALLAST_MIB": "49"}}
#: Of each node.
SCRIPTS = (("sgd", "adam"), ("ema",))


def test_actors_are_jobs_of_their_nodes_and_compute_what_they_compute_alone(cluster: Nodes, bare: BareRuns) -> None:
    running, pids = [], []
    for node, names in zip(cluster.nodes, SCRIPTS, strict=True):
        meeting = {"MEETING_POINT": str(node.daemon.meeting.path)}
        actors = [cluster.actor(node, BALLAST, name=name) for name in names]
        pids.append([actor.pid.remote() for actor in actors])
        running += [cluster.start(actor, Workload(name), **meeting) for actor, name in zip(actors, names, strict=True)]
    expected = [bare.result(Workload(name)) for names in SCRIPTS for name in names]
    for node, names in zip(cluster.nodes, SCRIPTS, strict=True):
        node.daemon.meeting.begin(len(names), together=True)
    assert get(*running) == expected, cluster.warnings()
    for node, names, processes in zip(cluster.nodes, SCRIPTS, pids, strict=True):
        jobs = node.jobs()
        assert {(job.name, job.pid) for job in jobs} == set(zip(names, get(*processes), strict=True))
        assert all(job.joined and job.iterations > 0 for job in jobs), node.daemon.story()
        assert len(names) == 1 or all(job.moved.out_bytes > 0 for job in jobs), node.daemon.story()
    assert cluster.warnings() == []


def test_ray_hides_no_device_of_a_job(cluster: Nodes) -> None:
    """As versions do whose workers without a `num_gpus` see none."""
    variables = {"CUDA_VISIBLE_DEVICES": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1"}
    actor = cluster.actor(cluster.nodes[0], {"env_vars": variables}, name="hidden")
    assert get(actor.variable.remote("CUDA_VISIBLE_DEVICES")) == ["0"]
