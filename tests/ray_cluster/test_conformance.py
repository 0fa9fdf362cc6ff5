"""The workloads of `tests/e2e/test_identical.py` in actors: bit for bit what they compute alone."""

from __future__ import annotations

import pytest

from tests.e2e.test_identical import TOGETHER
from tests.live import BareRuns, Workload
from tests.ray_cluster.nodes import Nodes, get
from tests.ray_cluster.test_endings import STAYS

pytestmark = pytest.mark.nightly("two dozen scripts of PyTorch in four actors: minutes", stays=STAYS)


def test_actors_compute_what_the_same_scripts_compute_alone(cluster: Nodes, bare: BareRuns) -> None:
    """Four lists of scripts, two actors on each node; each is one process for its whole list."""
    places = [cluster.nodes[number % 2] for number in range(len(TOGETHER))]
    actors = [
        cluster.actor(node, memory="8MiB/16MiB", name=names[0]) for node, names in zip(places, TOGETHER, strict=True)
    ]
    running = [
        cluster.start(actor, Workload("several", tuple(names)), MEETING_POINT=str(node.daemon.meeting.path))
        for actor, node, names in zip(actors, places, TOGETHER, strict=True)
    ]
    for node in cluster.nodes:
        node.daemon.meeting.begin(2, together=True)
    expected = [[bare.result(Workload.named(name)) for name in names] for names in TOGETHER]
    for names, results, alone in zip(TOGETHER, get(*running), expected, strict=True):
        assert [name for name, result, one in zip(names, results, alone, strict=True) if result != one] == []
    for node in cluster.nodes:
        switches = [job.switches for job in node.jobs()]
        assert len(switches) == 2
        assert min(switches) > 0, switches
    assert cluster.warnings() == []
