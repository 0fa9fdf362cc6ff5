"""Pods as containers of runc, with exactly the mounts and variables that Allocate has answered, in a user namespace.

What the kubelet would do with the answer the tests do; a pod says its name by the variable of the downward API.
"""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.containers.bundle import bind
from tests.containers.running import MAPPED, ended, until
from tests.e2e.watching import nothing_left

if TYPE_CHECKING:
    from carpool.protocol.api import JobInfo
    from tests.containers.running import Container, Containers, Given
    from tests.e2e.conftest import Bare, Daemon, Daemons
    from tests.kubernetes.conftest import Node
    from tests.live import Workload

STAYS = "tests/kubernetes/test_plugin.py::test_a_process_with_what_allocate_answered_trains_bit_identically"
pytestmark = pytest.mark.nightly("containers, daemons and plugins are killed: half a minute of PyTorch", stays=STAYS)
#: There is room for one of two pods.
DEVICE, BALLAST_MIB = "host:96MiB", 49
HEALTHY = {"host0::0": "Healthy", "host0::1": "Healthy"}


def given(answer: Any, name: str, **options: object) -> Given:
    """What the kubelet makes of an answer, and the pod's own variables."""
    assert not answer.devices
    assert all(mount.read_only for mount in answer.mounts)
    own = {"CARPOOL_POD_NAME": name, "CARPOOL_POD_OPTIONS": json.dumps(options)}
    return dict(answer.envs) | own, [bind(mount.host_path, mount.container_path) for mount in answer.mounts]


def job_of(daemon: Daemon, pod: Container) -> JobInfo:
    """The latest of the pod's name."""
    return max((job for job in daemon.client.jobs() if job.name == pod.name), key=lambda job: job.id)


def test_two_pods_on_one_device_compute_what_they_compute_alone(
    node: Node, daemons: Daemons, bare: Bare, workload: type[Workload], containers: Containers
) -> None:
    daemon = daemons(DEVICE, max_move_share_ppm=1_000_000)
    node.run(daemon.home, "--shares", "2", "--copy-to", str(containers.shared / "copies"))
    plugin = node.plugin()
    plugin.until(HEALTHY)
    pods = []
    for number, script in enumerate(("sgd", "adam")):
        about = given(plugin.allocate(f"host0::{number}"), containers.next_name, weight=300)
        pods.append(containers.run(about, workload(script), MAPPED, meet=True, ballast_mib=BALLAST_MIB))
    containers.meeting.begin(2, together=True)
    assert [pod.result(daemon) for pod in pods] == bare([workload("sgd"), workload("adam")])
    jobs = [ended(daemon, job_of(daemon, pod).id) for pod in pods]
    assert [(job.outcome, job.owner, job.weight, job.device) for job in jobs] == [
        ("succeeded", MAPPED, 300, "host0")
    ] * 2
    assert all(job.iterations > 0 and job.moved.out_bytes > 0 for job in jobs), daemon.story()
    nothing_left(daemon)


def test_a_pod_that_is_killed_in_its_turn_is_a_job_again_when_the_kubelet_restarts_its_container(
    node: Node, daemons: Daemons, bare: Bare, workload: type[Workload], containers: Containers
) -> None:
    """The kubelet asks for no new shares then: the container has what the first one had."""
    daemon = daemons(policy="fifo")
    node.run(daemon.home, "--shares", "2")
    plugin = node.plugin()
    plugin.until(HEALTHY)
    release = containers.shared / "release"
    killed = containers.run(
        given(plugin.allocate("host0::0"), containers.next_name), workload("steady", ("until", str(release))), MAPPED
    )
    first = killed.job(daemon)
    until(daemon, "GrantTurn", first.id)
    neighbour = containers.run(given(plugin.allocate("host0::1"), containers.next_name), workload("adam"), MAPPED)
    until(daemon, "TurnWanted", neighbour.job(daemon).id)
    os.kill(killed.pid(), signal.SIGKILL)
    assert (ended(daemon, first.id).outcome, ended(daemon, first.id).signal) == ("failed", signal.SIGKILL)
    assert neighbour.result(daemon) == bare([workload("adam")])[0]
    release.touch()
    killed.restart()
    count = killed.result(daemon)["count"]
    assert [json.loads(killed.out.read_text())] == bare([workload("steady", ("count", str(count)))])
    second = ended(daemon, job_of(daemon, killed).id)
    assert (second.id > first.id, second.outcome) == (True, "succeeded")
    nothing_left(daemon)


def test_pods_go_on_over_kills_of_the_daemon_and_the_plugin_and_new_ones_come(
    node: Node, daemons: Daemons, bare: Bare, workload: type[Workload], containers: Containers
) -> None:
    daemon, release = daemons(DEVICE), containers.shared / "release"
    process = node.run(daemon.home, "--shares", "2")
    plugin = node.plugin()
    plugin.until(HEALTHY)
    about = given(plugin.allocate("host0::0"), containers.next_name)
    pod = containers.run(about, workload("steady", ("until", str(release))), MAPPED, ballast_mib=BALLAST_MIB)
    until(daemon, "GrantTurn", pod.job(daemon).id)
    daemon.kill()
    plugin.until(dict.fromkeys(HEALTHY, "Unhealthy"))
    process.kill()
    daemon.start()
    node.run(daemon.home, "--shares", "2")
    again = node.plugin()
    again.until(HEALTHY)
    about = given(again.allocate("host0::1"), containers.next_name)
    late = containers.run(about, workload("adam"), MAPPED, ballast_mib=BALLAST_MIB)
    until(daemon, "TurnWanted", late.job(daemon).id)
    release.touch()
    count = pod.result(daemon)["count"]
    assert [json.loads(pod.out.read_text())] == bare([workload("steady", ("count", str(count)))])
    assert late.result(daemon) == bare([workload("adam")])[0]
    assert [ended(daemon, job_of(daemon, each).id).outcome for each in (pod, late)] == ["succeeded"] * 2
    nothing_left(daemon)
