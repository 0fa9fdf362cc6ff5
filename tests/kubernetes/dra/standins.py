"""Stand-ins for the API server (real HTTPS, a few paths) and for the kubelet (real gRPC, real sockets).

The API server refuses what `published` does not know, and changes made to an older version of an object.  It has no
scheduler: a claim is what a scheduler would have made of it.
"""

from __future__ import annotations

import json
import queue
import ssl
import threading
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc

from carpool.kubernetes.dra.v1 import dra_pb2 as api
from carpool.kubernetes.dra.v1 import registration_pb2 as registration
from carpool.kubernetes.dra.v1 import registration_pb2_grpc as registration_services
from tests.kubernetes.dra.published import refused, unknown
from tests.live import PATIENCE_S

GROUP, NODE, TOKEN = "/apis/resource.k8s.io/v1", "n1", "a-token"
SLICE = f"{GROUP}/resourceslices/{NODE}-carpool.dev"
#: A driver that has been killed is called again soon.
OFTEN = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200)]


class StandInApiServer:
    """``account``: what a pod's service account has; ``gate``: whether it knows of shared devices."""

    def __init__(self, account: Path, key: Path) -> None:
        self.account, self.gate, self.asked = account, True, 0
        self.objects: dict[str, Any] = {f"/api/v1/nodes/{NODE}": {"metadata": {"name": NODE, "uid": "uid-n1"}}}
        self._slices: queue.Queue[dict[str, Any]] = queue.Queue()
        (account / "token").write_text(f"{TOKEN}\n")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"stand_in": self}))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(account / "ca.crt", key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def slice(self) -> dict[str, Any]:
        """The next one that is published."""
        return self._slices.get(timeout=PATIENCE_S)

    def claim(self, name: str, parameters: object = None, **about: Any) -> api.Claim:
        """A claim that has been allocated host0, and what the kubelet says of it."""
        path = f"{GROUP}/namespaces/lab/resourceclaims/{name}"
        self.objects[path] = allocated(name, parameters, **about)
        assert unknown(self.objects[path], "ResourceClaim") == []
        return api.Claim(namespace="lab", name=name, uid=f"uid-{name}")

    def remove(self, claim: api.Claim) -> None:
        del self.objects[f"{GROUP}/namespaces/{claim.namespace}/resourceclaims/{claim.name}"]

    def written(self, path: str, body: dict[str, Any], *, new: bool) -> tuple[int, dict[str, Any]]:
        if wrong := refused(body):
            return 422, {"message": str(wrong)}
        if not new and body["metadata"]["resourceVersion"] != self.objects[path]["metadata"]["resourceVersion"]:
            return 409, {"message": "the object has been modified"}
        kept = deepcopy(body)
        kept["metadata"]["resourceVersion"] = str(int(body["metadata"].get("resourceVersion", "0")) + 1)
        for device in kept["spec"]["devices"] if not self.gate else []:
            del device["allowMultipleAllocations"]
        self.objects[path] = kept
        self._slices.put(kept["spec"])
        return 200, kept


class _Handler(BaseHTTPRequestHandler):
    stand_in: StandInApiServer

    def do_GET(self) -> None:
        self.stand_in.asked += 1
        found = self.stand_in.objects.get(self.path)
        self._answer(*((404, {"details": {"name": "x"}, "message": "not found"}) if found is None else (200, found)))

    def do_PUT(self) -> None:
        self._answer(*self.stand_in.written(self.path, self._body(), new=False))

    def do_POST(self) -> None:
        body = self._body()
        self._answer(*self.stand_in.written(f"{self.path}/{body['metadata']['name']}", body, new=True))

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            status, body = 401, {"message": "Unauthorized"}
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing: pytest would show it."""


def allocated(
    name: str,
    parameters: object = None,
    *,
    device: str = "host0",
    memory: str = "0",
    request: str = "gpu",
    uid: str = "",
    by_class: object = None,
    pod: str = "",
) -> dict[str, Any]:
    """A claim with its allocation; ``by_class``: parameters of its class; ``pod``: for which a template made it."""
    made = {"FromClass": by_class, "FromClaim": parameters}
    config = [
        {"source": source, "requests": [], "opaque": {"driver": "carpool.dev", "parameters": each}}
        for source, each in made.items()
        if each is not None
    ]
    shares = {"shares": "1", "memory": memory}
    about = {"request": request, "driver": "carpool.dev", "pool": NODE, "device": device}
    result = {**about, "shareID": f"share-of-{name}", "consumedCapacity": shares}
    owner = {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": "uid-pod"}]} if pod else {}
    metadata = {"name": name, "namespace": "lab", "uid": uid or f"uid-{name}", **owner}
    return {"metadata": metadata, "status": {"allocation": {"devices": {"results": [result], "config": config}}}}


class StandInDraKubelet:
    """``directory``: of the kubelet.  It calls a driver at the socket that the driver names at registration."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.registry = directory, directory / "plugins_registry"
        self.registry.mkdir(parents=True)
        self._channels: list[grpc.Channel] = []

    def register(self) -> registration.PluginInfo:
        """Ask who is at the driver's socket, as soon as it is there, and say that it is registered."""
        with self._channel(self.registry / "carpool.dev-reg.sock") as channel:
            stub = registration_services.RegistrationStub(channel)
            about = stub.GetInfo(registration.InfoRequest(), timeout=PATIENCE_S, wait_for_ready=True)
            stub.NotifyRegistrationStatus(registration.RegistrationStatus(plugin_registered=True), timeout=PATIENCE_S)
        return about

    def prepare(self, *claims: api.Claim, version: str = "v1") -> dict[str, api.NodePrepareResourceResponse]:
        return dict(self._call("NodePrepareResources", claims, version).claims)

    def unprepare(self, *claims: api.Claim, version: str = "v1") -> dict[str, str]:
        """The errors, by uid."""
        found = self._call("NodeUnprepareResources", claims, version).claims
        return {uid: response.error for uid, response in found.items()}

    def _call(self, name: str, claims: tuple[api.Claim, ...], version: str) -> Any:
        request, response = getattr(api, f"{name}Request"), getattr(api, f"{name}Response")
        path = f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/{name}"
        with self._channel(self.directory / "plugins" / "carpool.dev" / "dra.sock") as channel:
            call = channel.unary_unary(path, request.SerializeToString, response.FromString)
            return call(request(claims=claims), timeout=PATIENCE_S, wait_for_ready=True)

    def _channel(self, path: Path) -> grpc.Channel:
        return grpc.insecure_channel(f"unix:{path}", options=OFTEN)
