"""Pods as containers of runc, with exactly the mounts and variables of the CDI files, in a user namespace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.containers.running import MAPPED, ended, until
from tests.e2e.watching import joined, nothing_left
from tests.kubernetes.dra.cdi_edits import given

if TYPE_CHECKING:
    from tests.containers.running import Containers, Given
    from tests.e2e.conftest import Bare, Daemons
    from tests.kubernetes.dra.conftest import DraNode
    from tests.kubernetes.dra.standins import StandInApiServer
    from tests.live import Workload

STAYS = "tests/kubernetes/dra/test_shared.py::test_processes_of_two_claims_share_a_device_bit_identically"
pytestmark = pytest.mark.nightly("containers, daemons and drivers are killed", stays=STAYS)
#: There is room for one of two pods.
DEVICE, BALLAST_MIB = "host:96MiB", 49


def prepared(node: DraNode, api_server: StandInApiServer, name: str, **parameters: object) -> Given:
    """What the runtime gives to a container whose claim has this name, as its job will have."""
    claim = api_server.claim(name, parameters)
    (device,) = node.kubelet.prepare(claim)[claim.uid].devices
    (cdi_device,) = device.cdi_device_ids
    return given(node.cdi, cdi_device)


def test_two_pods_on_one_device_compute_what_they_compute_alone(
    dra_node: DraNode,
    api_server: StandInApiServer,
    daemons: Daemons,
    bare: Bare,
    workload: type[Workload],
    containers: Containers,
) -> None:
    daemon = daemons(DEVICE, max_move_share_ppm=1_000_000)
    dra_node.run(daemon.home, "--copy-to", str(containers.shared / "copies"))
    pods = []
    for weight, script in ((300, "sgd"), (200, "adam")):
        about = prepared(dra_node, api_server, containers.next_name, weight=weight)
        pods.append(containers.run(about, workload(script), MAPPED, meet=True, ballast_mib=BALLAST_MIB))
    containers.meeting.begin(2, together=True)
    assert [pod.result(daemon) for pod in pods] == bare([workload("sgd"), workload("adam")])
    jobs = [ended(daemon, joined(daemon, pod.name).id) for pod in pods]
    assert [(job.outcome, job.owner, job.weight, job.device) for job in jobs] == [
        ("succeeded", MAPPED, 300, "host0"),
        ("succeeded", MAPPED, 200, "host0"),
    ]
    assert all(job.iterations > 0 and job.moved.out_bytes > 0 for job in jobs), daemon.story()
    nothing_left(daemon)


def test_pods_go_on_over_kills_of_the_daemon_and_the_driver_and_new_ones_come(
    dra_node: DraNode,
    api_server: StandInApiServer,
    daemons: Daemons,
    bare: Bare,
    workload: type[Workload],
    containers: Containers,
) -> None:
    daemon, release = daemons(DEVICE), containers.shared / "release"
    driver = dra_node.run(daemon.home)
    about = prepared(dra_node, api_server, containers.next_name)
    pod = containers.run(about, workload("steady", ("until", str(release))), MAPPED, ballast_mib=BALLAST_MIB)
    until(daemon, "GrantTurn", pod.job(daemon).id)
    daemon.kill()
    driver.kill()
    driver.wait()
    daemon.start()
    dra_node.run(daemon.home)
    assert prepared(dra_node, api_server, pod.name) == about, "the kubelet may ask again"
    about = prepared(dra_node, api_server, containers.next_name)
    late = containers.run(about, workload("adam"), MAPPED, ballast_mib=BALLAST_MIB)
    until(daemon, "TurnWanted", late.job(daemon).id)
    release.touch()
    count = pod.result(daemon)["count"]
    assert [json.loads(pod.out.read_text())] == bare([workload("steady", ("count", str(count)))])
    assert late.result(daemon) == bare([workload("adam")])[0]
    assert [ended(daemon, joined(daemon, each.name).id).outcome for each in (pod, late)] == ["succeeded"] * 2
    nothing_left(daemon)
