"""The driver between two stand-ins, over real gRPC and HTTPS; what containers need is made up."""

from __future__ import annotations

import json
import stat
import threading
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed (pip install 'carpool[k8s]')")
from carpool.kubernetes.daemon_devices import SaidOnce
from carpool.kubernetes.dra import agent
from carpool.kubernetes.dra.agent import TwoDrivers
from carpool.kubernetes.dra.api_server import ApiServerError
from carpool.kubernetes.dra.v1 import dra_pb2 as api
from tests.kubernetes.dra.published import unknown

if TYPE_CHECKING:
    from tests.kubernetes.dra.conftest import DraNode
    from tests.kubernetes.dra.standins import StandInApiServer

A = "carpool.dev-claim_uid-a.json"


def content(node: DraNode, name: str = A) -> Any:
    return json.loads((node.cdi / name).read_text())


def test_a_claim_becomes_a_cdi_file_and_both_versions_answer_the_same(
    dra_node: DraNode, api_server: StandInApiServer
) -> None:
    dra_node.gpu = "GPU-1"
    dra_node.start()
    claim = api_server.claim("a", {"weight": 300}, request="gpu/small")
    found = {version: dra_node.kubelet.prepare(claim, version=version)["uid-a"] for version in ("v1", "v1beta1")}
    assert found["v1"] == found["v1beta1"]
    (device,) = found["v1"].devices
    assert (found["v1"].error, [*device.request_names]) == ("", ["gpu"])
    assert (device.pool_name, device.device_name) == ("n1", "host0")
    assert [*device.cdi_device_ids] == ["carpool.dev/claim=uid-a", "nvidia.com/gpu=GPU-1"]
    assert [options.weight for options in dra_node.needed] == [300], "the second answer is the file's"
    spec = content(dra_node)
    assert unknown(spec, "CdiSpec") == []
    assert (spec["cdiVersion"], spec["kind"]) == ("0.6.0", "carpool.dev/claim")
    (made,) = spec["devices"]
    mount = {"hostPath": "/a", "containerPath": "/b", "options": ["rbind", "rprivate", "ro"]}
    edits = {"env": ["A=b", "CARPOOL_JOIN=/run/carpool/x"], "mounts": [mount], "deviceNodes": []}
    assert made == {"name": "uid-a", "containerEdits": edits}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_an_unprepared_claim_leaves_nothing_however_often(
    dra_node: DraNode, api_server: StandInApiServer, version: str
) -> None:
    dra_node.start()
    claim = api_server.claim("a")
    dra_node.kubelet.prepare(claim, version=version)
    api_server.remove(claim)
    assert [dra_node.kubelet.unprepare(claim, version=version) for _ in range(2)] == [{"uid-a": ""}] * 2
    assert [*dra_node.cdi.iterdir()] == []


def test_the_kubelet_is_told_name_versions_and_place(dra_node: DraNode) -> None:
    dra_node.start()
    about = dra_node.kubelet.register()
    assert (about.type, about.name) == ("DRAPlugin", "carpool.dev")
    assert [*about.supported_versions] == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
    assert about.endpoint == str(dra_node.kubelet.directory / "plugins" / "carpool.dev" / "dra.sock")


def test_only_root_reaches_the_sockets_and_reads_the_files(dra_node: DraNode, api_server: StandInApiServer) -> None:
    dra_node.start()
    dra_node.kubelet.prepare(api_server.claim("a"))
    own = dra_node.kubelet.directory / "plugins" / "carpool.dev"
    sockets = (own / "dra.sock", dra_node.kubelet.registry / "carpool.dev-reg.sock")
    assert [stat.filemode(path.stat().st_mode) for path in sockets] == ["srw-------"] * 2
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert stat.S_IMODE((dra_node.cdi / A).stat().st_mode) == 0o600
    dra_node.stop()
    assert not any(path.exists() for path in sockets)


def test_each_claim_has_its_own_error(dra_node: DraNode, api_server: StandInApiServer) -> None:
    dra_node.start()
    replaced = api_server.claim("replaced", uid="another")
    gone, bad = api.Claim(namespace="lab", name="gone", uid="uid-gone"), api_server.claim("bad", {"wieght": 1})
    elsewhere, broken = api_server.claim("elsewhere"), api_server.claim("broken", device="host7")
    (path,) = (path for path in api_server.objects if path.endswith("/elsewhere"))
    api_server.objects[path]["status"] = {}
    found = dra_node.kubelet.prepare(replaced, gone, bad, elsewhere, broken, api_server.claim("a"))
    assert {uid.removeprefix("uid-"): response.error for uid, response in found.items()} == {
        "replaced": "carpool.dev: claim lab/replaced is gone, or replaced by another of that name",
        "gone": "carpool.dev: claim lab/gone is gone, or replaced by another of that name",
        "bad": "carpool.dev: there is no option 'wieght' (did you mean 'weight'? known: name, memory, weight,"
        " iterations, expect, time, exclusive, service)",
        "elsewhere": "carpool.dev: claim lab/elsewhere has no device of node n1",
        "broken": "carpool.dev: there is no device 'host7'",
        "a": "",
    }
    assert [path.name for path in dra_node.cdi.iterdir()] == [A]


def test_a_uid_is_no_path(dra_node: DraNode, api_server: StandInApiServer) -> None:
    dra_node.start()
    outside = dra_node.cdi / "x.json"
    outside.touch()
    claim = api_server.claim("evil", uid="../x")
    claim.uid = "../x"
    assert "is not the uid of a claim" in dra_node.kubelet.prepare(claim)["../x"].error
    assert "is not the uid of a claim" in dra_node.kubelet.unprepare(claim)["../x"]
    assert [path.name for path in dra_node.cdi.iterdir()] == ["x.json"]


def test_a_claim_that_was_allocated_anew_is_prepared_anew(dra_node: DraNode, api_server: StandInApiServer) -> None:
    dra_node.start()
    dra_node.kubelet.prepare(api_server.claim("a", {"weight": 1}))
    dra_node.kubelet.prepare(api_server.claim("a", {"weight": 2}))
    assert [options.weight for options in dra_node.needed] == [1, 2]


def test_a_new_driver_answers_from_the_files_and_removes_what_is_stale(
    dra_node: DraNode, api_server: StandInApiServer
) -> None:
    dra_node.start()
    claims = [api_server.claim(name) for name in ("a", "gone", "replaced", "elsewhere", "torn")]
    before = dra_node.kubelet.prepare(*claims)
    dra_node.stop()
    api_server.remove(claims[1])
    api_server.claim("replaced", uid="another")
    api_server.objects["/apis/resource.k8s.io/v1/namespaces/lab/resourceclaims/elsewhere"]["status"] = {}
    (dra_node.cdi / "carpool.dev-claim_uid-torn.json").write_text("{")
    for name in ("carpool.dev-claim_uid-b.draft", "nvidia.com-gpu.json", "carpool.dev-claims.yaml"):
        (dra_node.cdi / name).touch()
    dra_node.needed.clear()
    dra_node.start()
    dra_node.agent()._claims.remove_stale()
    assert {path.name for path in dra_node.cdi.iterdir()} == {A, "nvidia.com-gpu.json", "carpool.dev-claims.yaml"}
    assert dra_node.kubelet.prepare(claims[0])["uid-a"] == before["uid-a"]
    assert dra_node.needed == []


def test_nothing_is_stale_while_the_api_server_does_not_say_so(dra_node: DraNode, api_server: StandInApiServer) -> None:
    dra_node.start()
    dra_node.kubelet.prepare(api_server.claim("a"))
    (api_server.account / "token").write_text("old")
    with pytest.raises(ApiServerError, match="401"):
        dra_node.agent()._claims.remove_stale()
    assert (dra_node.cdi / A).exists()


def test_a_second_driver_does_not_take_the_sockets(dra_node: DraNode) -> None:
    dra_node.start()
    with pytest.raises(TwoDrivers, match="another driver serves this node"):
        dra_node.agent().run(threading.Event())
    assert dra_node.kubelet.register().name == "carpool.dev"


def test_trouble_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    troubles = SaidOnce(agent.log.warning)
    for text in ("a", "a", "", "a", "b"):
        troubles.now(text)
    assert [record.message for record in caplog.records] == ["a", "a", "b"]
