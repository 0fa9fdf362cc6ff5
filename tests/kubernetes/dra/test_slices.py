"""What the API server, here a stand-in, is told of the devices."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed (pip install 'carpool[k8s]')")
from carpool.kubernetes.dra import slices
from carpool.kubernetes.dra.api_server import ApiServerError, KubernetesApi
from carpool.kubernetes.dra.claims import BadClaim
from carpool.kubernetes.dra.slices import SlicePublisher
from carpool.protocol.api import DeviceInfo, MovedInfo
from tests.kubernetes.dra.standins import NODE, SLICE

if TYPE_CHECKING:
    from tests.kubernetes.dra.standins import StandInApiServer

MIB = 1 << 20


def device(name: str = "cuda0", *, drained: str = "", uuid: str = "GPU-1", size: int = 80 * MIB) -> DeviceInfo:
    return DeviceInfo(
        id=name, kind="cuda", capacity_bytes=size, granted_bytes=0, used_bytes=0, free_bytes=size, lanes=[], jobs=[],
        queue=[], quantum_us=1, quantum_from="settings", oversubscribe="auto", stored_bytes=0,
        moved=MovedInfo(0, 0), drained=drained, uuid=uuid,
    )  # fmt: skip


class Daemon:
    """``devices``: None while it does not run."""

    def __init__(
        self, api_server: StandInApiServer, *devices: DeviceInfo, client: type[KubernetesApi] = KubernetesApi
    ) -> None:
        self.devices: list[DeviceInfo] | None = list(devices)
        server = client(api_server.url, api_server.account)
        self.publisher = SlicePublisher(server, NODE, 10, lambda: self.devices)

    def publish(self) -> None:
        self.publisher.publish()


def taints(spec: dict[str, Any]) -> list[list[str]]:
    return [[taint["key"] for taint in device["taints"]] for device in spec["devices"]]


def test_each_device_is_shared_and_memory_is_a_hint(api_server: StandInApiServer) -> None:
    Daemon(api_server, device(), device("host0", uuid="")).publish()
    spec = api_server.slice()
    assert (spec["driver"], spec["nodeName"]) == ("carpool.dev", NODE)
    assert spec["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    first, second = spec["devices"]
    assert (first["name"], first["allowMultipleAllocations"], first["taints"]) == ("cuda0", True, [])
    assert first["attributes"] == {"kind": {"string": "cuda"}, "memoryMiB": {"int": 80}, "uuid": {"string": "GPU-1"}}
    policy = {"default": "1", "validRange": {"min": "1", "max": "10"}}
    assert first["capacity"]["shares"] == {"value": "10", "requestPolicy": policy}
    assert first["capacity"]["memory"]["requestPolicy"] == {"default": "0", "validRange": {"min": "0", "max": "80Mi"}}
    assert first["capacity"]["memory"]["value"] == "800Mi", "ten claims may each ask for all"
    assert (second["name"], "uuid" in second["attributes"]) == ("host0", False)
    owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "uid-n1"}
    assert api_server.objects[SLICE]["metadata"]["ownerReferences"] == [owner]


def test_drained_devices_are_tainted_and_so_are_all_while_the_daemon_is_down(api_server: StandInApiServer) -> None:
    daemon = Daemon(api_server, device(), device("cuda1", drained="new fan"))
    daemon.publish()
    assert taints(api_server.slice()) == [[], ["carpool.dev/drained"]]
    daemon.devices = None
    daemon.publish()
    down = api_server.slice()
    assert taints(down) == [["carpool.dev/daemon-down"], ["carpool.dev/drained", "carpool.dev/daemon-down"]]
    assert {taint["effect"] for each in down["devices"] for taint in each["taints"]} == {"NoSchedule"}
    daemon.devices = [device()]
    daemon.publish()
    back = api_server.slice()
    assert (taints(back), back["pool"]["generation"]) == ([[]], 3)


def test_a_driver_that_starts_without_a_daemon_leaves_the_slice_as_it_is(api_server: StandInApiServer) -> None:
    daemon = Daemon(api_server)
    daemon.devices = None
    daemon.publish()
    assert (api_server.asked, SLICE in api_server.objects) == (0, False)


def test_nothing_is_written_without_a_change_and_a_lost_slice_comes_back(
    api_server: StandInApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(api_server, device())
    daemon.publish()
    first, asked = api_server.objects[SLICE], api_server.asked
    daemon.publish()
    assert api_server.asked == asked, "nothing is asked either"
    Daemon(api_server, device()).publish()
    assert api_server.objects[SLICE] is first, "a new driver finds it"
    monkeypatch.setattr(slices, "RECHECK_S", 0.0)
    del api_server.objects[SLICE]
    daemon.publish()
    assert api_server.objects[SLICE]["spec"] == first["spec"]


def test_others_annotations_stay_and_an_older_version_replaces_nothing(api_server: StandInApiServer) -> None:
    daemon = Daemon(api_server, device())
    daemon.publish()
    api_server.objects[SLICE]["metadata"]["annotations"]["other"] = "x"
    daemon.devices = []
    daemon.publish()
    assert api_server.objects[SLICE]["metadata"]["annotations"]["other"] == "x"

    class Late(KubernetesApi):
        def get(self, path: str) -> Any:
            found = super().get(path)
            daemon.devices = [device("cuda1")]
            daemon.publish()
            return found

    with pytest.raises(ApiServerError, match="409: the object has been modified"):
        Daemon(api_server, device(), client=Late).publish()
    assert [each["name"] for each in api_server.objects[SLICE]["spec"]["devices"]] == ["cuda1"]


def test_an_api_server_without_shared_devices_is_reported(
    api_server: StandInApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    api_server.gate = False
    with caplog.at_level(logging.ERROR):
        Daemon(api_server, device()).publish()
    assert "feature gate DRAConsumableCapacity" in caplog.text
    api_server.gate = True
    Daemon(api_server, device()).publish()
    assert api_server.objects[SLICE]["spec"]["devices"][0]["allowMultipleAllocations"] is True


def test_what_kubernetes_would_not_take_is_said(api_server: StandInApiServer) -> None:
    with pytest.raises(BadClaim, match="no device 'Cuda_0'"):
        Daemon(api_server, device("Cuda_0")).publish()
    api_server.objects.clear()
    with pytest.raises(BadClaim, match="no node 'n1': give --node"):
        Daemon(api_server, device()).publish()


def test_errors_of_the_api_server_say_what_to_do(api_server: StandInApiServer) -> None:
    (api_server.account / "token").write_text("old")
    with pytest.raises(ApiServerError, match=r"401: Unauthorized .*rbac\.yaml"):
        Daemon(api_server, device()).publish()
    (api_server.account / "ca.crt").write_text("")
    with pytest.raises(ApiServerError, match="SSL"):
        Daemon(api_server, device()).publish()
    for url in ("http://127.0.0.1:1", "127.0.0.1:1", "https://"):
        with pytest.raises(ValueError, match="begins with https"):
            KubernetesApi(url, api_server.account)
