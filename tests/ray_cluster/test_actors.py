"""Actors on two nodes are jobs of their nodes' daemons: bit-identical, on devices that are too small for them."""

from __future__ import annotations

from tests.live import BareRuns
from tests.ray_cluster.nodes import Nodes, Workload, get

#: The device has room for one of them.
BALLAST = {"env_vars": {"BALLAST_MIB": "49"}}
PAIRS = (("sgd", "adam"), ("ema", "gan"))


def test_actors_are_jobs_of_their_nodes_and_compute_what_they_compute_alone(cluster: Nodes, bare: BareRuns) -> None:
    running, pids = [], []
    for node, pair in zip(cluster.nodes, PAIRS, strict=True):
        meeting = {"MEETING_POINT": str(node.daemon.meeting.path)}
        actors = [cluster.actor(node, BALLAST, name=name) for name in pair]
        pids.append([actor.pid.remote() for actor in actors])
        running += [cluster.start(actor, Workload(name), **meeting) for actor, name in zip(actors, pair, strict=True)]
    expected = [bare.result(Workload(name)) for pair in PAIRS for name in pair]
    for node in cluster.nodes:
        node.daemon.meeting.begin(2)
    assert get(*running) == expected, cluster.warnings()
    for node, pair, processes in zip(cluster.nodes, PAIRS, pids, strict=True):
        jobs = node.jobs()
        assert {(job.name, job.pid) for job in jobs} == set(zip(pair, get(*processes), strict=True))
        assert all(job.joined and job.iterations > 0 and job.moved.out_bytes > 0 for job in jobs), node.daemon.story()
    assert cluster.warnings() == []
