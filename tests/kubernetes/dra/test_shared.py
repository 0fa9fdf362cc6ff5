"""Two claims, one device that is too small for both: plain processes with exactly the variables of the CDI files."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.kubernetes.dra.cdi_edits import outside
from tests.live import PATIENCE_S, python_path

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon, Daemons
    from tests.kubernetes.dra.conftest import DraNode
    from tests.kubernetes.dra.standins import StandInApiServer
    from tests.live import Workload

MIB = 1 << 20
DEVICE, BALLAST_MIB = "host:96MiB", 49


def test_processes_of_two_claims_share_a_device_bit_identically(
    dra_node: DraNode,
    api_server: StandInApiServer,
    daemons: Daemons,
    bare: Bare,
    workload: type[Workload],
    jobs_environment: dict[str, str],
) -> None:
    daemon = daemons(DEVICE, max_move_share_ppm=1_000_000)
    dra_node.run(daemon.home)
    dra_node.kubelet.register()
    (device,) = api_server.slice()["devices"]
    assert (device["name"], device["attributes"]["memoryMiB"]) == ("host0", {"int": 96})
    claims = [api_server.claim("a", {"weight": 300}), api_server.claim("b", {"name": "bee"}, memory="60Mi", pod="x")]
    prepared = dra_node.kubelet.prepare(*claims)
    pods = []
    for script, claim in zip(("sgd", "adam"), claims, strict=True):
        ((cdi_device,),) = (device.cdi_device_ids for device in prepared[claim.uid].devices)
        variables = jobs_environment | outside(dra_node.cdi, cdi_device) | meeting(daemon)
        variables["PYTHONPATH"] += f":{python_path()}"
        pods.append(subprocess.Popen(workload(script).command(dra_node.directory / script), env=variables))
    daemon.meeting.begin(2, together=True)
    assert [pod.wait(PATIENCE_S) for pod in pods] == [0, 0]
    results = [json.loads((dra_node.directory / script).read_text()) for script in ("sgd", "adam")]
    assert results == bare([workload("sgd"), workload("adam")])
    first, second = sorted(
        (daemon.client.wait(job.id, PATIENCE_S) for job in daemon.client.jobs()), key=lambda j: j.name
    )
    assert [(job.name, job.weight, job.launcher, job.outcome) for job in (first, second)] == [
        ("a", 300, "claim lab/a", "succeeded"),
        ("bee", 100, "claim lab/b", "succeeded"),
    ]
    assert all(job.moved.out_bytes > 0 and job.iterations > 0 for job in (first, second)), daemon.story()
    assert dra_node.kubelet.unprepare(*claims) == {"uid-a": "", "uid-b": ""}
    assert [*dra_node.cdi.iterdir()] == []


def meeting(daemon: Daemon) -> dict[str, str]:
    return {"MEETING_POINT": str(daemon.meeting.path), "BALLAST_MIB": str(BALLAST_MIB)}


@pytest.mark.nightly("starts a daemon and drivers", stays="test_processes_of_two_claims_share_a_device_bit_identically")
def test_the_slice_follows_the_daemon(dra_node: DraNode, api_server: StandInApiServer, daemons: Daemons) -> None:
    from carpool.protocol.api import DeviceRequest

    daemon = daemons(DEVICE)
    dra_node.run(daemon.home)
    taints = [api_server.slice()["devices"][0]["taints"]]
    daemon.client.set_device("host0", DeviceRequest(drain=True))
    taints.append(api_server.slice()["devices"][0]["taints"])
    daemon.kill()
    taints.append(api_server.slice()["devices"][0]["taints"])
    (error,) = (response.error for response in dra_node.kubelet.prepare(api_server.claim("a")).values())
    assert "no daemon is running" in error
    daemon.start()
    taints.append(api_server.slice()["devices"][0]["taints"])
    assert [[taint["key"] for taint in each] for each in taints] == [
        [], ["carpool.dev/drained"], ["carpool.dev/drained", "carpool.dev/daemon-down"], ["carpool.dev/drained"],
    ]  # fmt: skip
    assert dra_node.kubelet.prepare(api_server.claim("a"))["uid-a"].error == ""
