"""`carpool k8s plugin` with a real daemon and a stand-in for the kubelet, which speaks the real API."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool.protocol.api import DeviceRequest
from tests.live import PATIENCE_S, python_path

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemons
    from tests.kubernetes.conftest import Node
    from tests.live import Workload

pytest.importorskip("grpc", reason="grpcio is not installed (pip install 'carpool[k8s]')")
import grpc

DEVICE = "host:256MiB"
STAYS = "test_a_process_with_what_allocate_answered_trains_bit_identically"
GOES_ON = pytest.mark.nightly("starts daemons and plugins, and kills them", stays=STAYS)


def shares(health: str, devices: tuple[str, ...] = ("host0",), count: int = 2) -> dict[str, str]:
    return {f"{device}::{number}": health for device in devices for number in range(count)}


def of_pod(answer: object, mounts: dict[str, str]) -> dict[str, str]:
    """The variables of the container, with the paths that its mounts have outside: for a plain process."""
    variables = {}
    for name, value in answer.envs.items():  # type: ignore[attr-defined]
        for there, here in mounts.items():
            value = value.replace(there, here)
        variables[name] = value
    return variables


def test_a_process_with_what_allocate_answered_trains_bit_identically(
    node: Node, daemons: Daemons, bare: Bare, workload: type[Workload], jobs_environment: dict[str, str]
) -> None:
    daemon = daemons(DEVICE)
    node.run(daemon.home, "--shares", "2", "--copy-to", str(node.directory / "copies"))
    plugin = node.plugin()
    request = plugin.request
    assert (request.version, request.endpoint, request.resource_name) == ("v1beta1", "carpool.sock", "carpool.dev/gpu")
    assert request.options.get_preferred_allocation_available
    plugin.until(shares("Healthy"))
    answer = plugin.allocate("host0::1")
    mounts = {mount.container_path: mount.host_path for mount in answer.mounts}
    assert all(mount.read_only for mount in answer.mounts)
    assert mounts.pop("/run/carpool") == str(daemon.home / "joining")
    (package,) = {here.removesuffix(there.removeprefix("/opt/carpool")) for there, here in mounts.items()}
    assert Path(package).parent == node.directory / "copies"
    variables = of_pod(answer, {"/opt/carpool": package, "/run/carpool": str(daemon.home / "joining")})
    variables["PYTHONPATH"] += f":{python_path()}"
    pod = {"CARPOOL_POD_NAME": "trainer-0", "CARPOOL_POD_OPTIONS": '{"weight": 300}'}
    out = daemon.home / "out"
    subprocess.run(workload("sgd").command(out), env=jobs_environment | variables | pod, check=True, timeout=PATIENCE_S)
    assert [json.loads(out.read_text())] == bare([workload("sgd")])
    (job,) = daemon.client.jobs()
    ended = daemon.client.wait(job.id, PATIENCE_S)
    assert (ended.name, ended.outcome, ended.weight, ended.device) == ("trainer-0", "succeeded", 300, "host0")
    assert ended.iterations > 0


@GOES_ON
def test_shares_are_unhealthy_while_no_daemon_runs_and_healthy_when_it_is_back(node: Node, daemons: Daemons) -> None:
    daemon = daemons(DEVICE)
    node.run(daemon.home, "--shares", "2")
    plugin = node.plugin()
    plugin.until(shares("Healthy"))
    daemon.kill()
    plugin.until(shares("Unhealthy"))
    with pytest.raises(grpc.RpcError) as refused:
        plugin.allocate("host0::0")
    assert (refused.value.code(), "Carpool" in refused.value.details()) == (grpc.StatusCode.UNAVAILABLE, True)
    daemon.start()
    plugin.until(shares("Healthy"))
    assert plugin.allocate("host0::0").envs["CARPOOL_JOIN"] == "/run/carpool/session.sock"


@GOES_ON
def test_a_kubelet_that_starts_again_gets_the_plugin_again(node: Node, daemons: Daemons) -> None:
    daemon = daemons(DEVICE)
    process = node.run(daemon.home, "--shares", "2")
    before = node.plugin()
    before.until(shares("Healthy"))
    node.kubelet.stop()
    node.kubelet.refusals = 2
    node.kubelet.start()
    before.until_ended()
    after = node.plugin()
    after.until(shares("Healthy"))
    assert after.allocate("host0::0").mounts
    process.terminate()
    after.until_ended()
    assert (process.wait(PATIENCE_S), (node.directory / "carpool.sock").exists()) == (0, False)


@GOES_ON
def test_a_plugin_that_was_killed_is_replaced_by_the_next(node: Node, daemons: Daemons) -> None:
    daemon = daemons(DEVICE)
    first = node.run(daemon.home, "--shares", "2")
    node.plugin().until(shares("Healthy"))
    first.kill()
    node.run(daemon.home, "--shares", "2")
    node.plugin().until(shares("Healthy"))


@GOES_ON
def test_a_drained_device_and_one_that_is_gone_have_unhealthy_shares(node: Node, daemons: Daemons) -> None:
    daemon = daemons(DEVICE, DEVICE)
    node.run(daemon.home, "--shares", "1")
    plugin = node.plugin()
    plugin.until({"host0::0": "Healthy", "host1::0": "Healthy"})
    daemon.client.set_device("host0", DeviceRequest(drain=True))
    plugin.until({"host0::0": "Unhealthy", "host1::0": "Healthy"})
    daemon.client.set_device("host0", DeviceRequest(drain=False))
    plugin.until({"host0::0": "Healthy", "host1::0": "Healthy"})
    daemon.kill()
    daemon._options = [option for option in daemon._options if not option.startswith("--device=")] + [
        "--device",
        DEVICE,
    ]
    daemon.start()
    plugin.until({"host0::0": "Healthy", "host1::0": "Unhealthy"})


@GOES_ON
def test_bad_shares_are_refused_with_a_reason(node: Node, daemons: Daemons) -> None:
    daemon = daemons(DEVICE, DEVICE)
    node.run(daemon.home, "--shares", "2")
    plugin = node.plugin()
    for asked, reason in ((("host0::0", "host1::0"), "one device"), (("host0::2",), "no share"), (("x",), "no share")):
        with pytest.raises(grpc.RpcError) as refused:
            plugin.allocate(*asked)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert reason in refused.value.details()


@GOES_ON
def test_all_shares_of_a_container_are_of_the_device_with_most_free_memory(node: Node, daemons: Daemons) -> None:
    daemon = daemons("host:128MiB", DEVICE)
    node.run(daemon.home, "--shares", "2")
    plugin = node.plugin()
    plugin.until(shares("Healthy", ("host0", "host1")))
    available = ["host0::0", "host1::0", "host0::1", "host1::1"]
    assert plugin.preferred(available, 2) == ["host1::0", "host1::1"]
    assert plugin.preferred(available, 2, ("host0::1",)) == ["host0::1", "host0::0"]


@GOES_ON
def test_nothing_is_left_when_a_kubelet_never_comes(node: Node, daemons: Daemons) -> None:
    daemon = daemons(DEVICE)
    node.kubelet.stop()
    process = node.run(daemon.home)
    assert process.stderr is not None
    assert any("waiting for the kubelet" in line for line in iter(process.stderr.readline, ""))
    process.terminate()
    assert process.wait(PATIENCE_S) == 0
    assert not list(node.directory.iterdir())
