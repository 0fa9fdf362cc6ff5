"""The driver's side of the kubelet's API: claims are prepared as CDI files, and unprepared by removing these."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

import grpc
import msgspec

from carpool.kubernetes.allocation import GpuAccess, NeedsOf, answer
from carpool.kubernetes.dra.api_server import GROUP, KubernetesApi
from carpool.kubernetes.dra.cdi import CdiDirectory, ClaimRecord, record_of
from carpool.kubernetes.dra.claims import DRIVER, BadClaim, DeviceResult, ResourceClaim
from carpool.kubernetes.dra.v1 import dra_pb2 as api
from carpool.kubernetes.dra.v1 import registration_pb2 as registration
from carpool.kubernetes.dra.v1 import registration_pb2_grpc as registration_services

log = logging.getLogger(__name__)
#: Versions of the kubelet's API; their messages are the same.
VERSIONS = ("v1", "v1beta1")
METHODS = ("NodePrepareResources", "NodeUnprepareResources")


class Means(NamedTuple):
    """The means by which claims are prepared.  ``node``: the name of the node, and of its pool."""

    node: str
    api_server: KubernetesApi
    cdi: CdiDirectory
    needs_of: NeedsOf
    access: GpuAccess


class Claims:
    """Prepares claims, one at a time: the same answer for the same allocation, also after a kill."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._lock = threading.Lock()

    def prepare(self, asked: api.Claim) -> ClaimRecord:
        """Return the record of a claim, whose CDI file exists now.  Raises BadClaim, ApiServerError, OSError, ..."""
        with self._lock:
            claim, result = self._allocated(asked)
            kept = self._means.cdi.record(asked.uid)
            return kept if kept is not None and kept.digest == claim.digest else self._made(claim, result)

    def unprepare(self, asked: api.Claim) -> None:
        """Forget a claim; one that is unknown is forgotten already.  Raises BadClaim, OSError."""
        with self._lock:
            self._means.cdi.remove(asked.uid)

    def remove_stale(self) -> None:
        """Remove CDI files of claims that this node does not have any more.  Raises ApiServerError, OSError."""
        for record in list(self._means.cdi.records()):
            with self._lock:
                if self._is_stale(record):
                    log.info("claim %s/%s is gone: its CDI file is removed", record.namespace, record.name)
                    self._means.cdi.remove(record.uid)

    def _allocated(self, asked: api.Claim) -> tuple[ResourceClaim, DeviceResult]:
        claim = self._found(asked.namespace, asked.name)
        if claim is None or claim.metadata.uid != asked.uid:
            raise BadClaim(f"claim {asked.namespace}/{asked.name} is gone, or replaced by another of that name")
        if (result := claim.result(self._means.node)) is None:
            raise BadClaim(f"claim {asked.namespace}/{asked.name} has no device of node {self._means.node}")
        return claim, result

    def _found(self, namespace: str, name: str) -> ResourceClaim | None:
        path = f"{GROUP}/namespaces/{quote(namespace, safe='')}/resourceclaims/{quote(name, safe='')}"
        found = self._means.api_server.get(path)
        return None if found is None else msgspec.convert(found, ResourceClaim)

    def _made(self, claim: ResourceClaim, result: DeviceResult) -> ClaimRecord:
        given = answer(self._means.needs_of(claim.options(result)), self._means.access)
        record = record_of(claim, self._means.node, given)
        self._means.cdi.write(record, given)
        return record

    def _is_stale(self, record: ClaimRecord) -> bool:
        claim = self._found(record.namespace, record.name)
        return claim is None or claim.metadata.uid != record.uid or claim.result(self._means.node) is None


class DraServicer:
    """Answers the kubelet; an error of one claim is that claim's, and the kubelet asks again."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims

    def NodePrepareResources(self, request: Any, context: Any) -> api.NodePrepareResourcesResponse:  # noqa: N802
        """Prepare claims."""
        response = api.NodePrepareResourcesResponse()
        for claim in request.claims:
            _tried(claim, response.claims[claim.uid], lambda asked: _devices(self._claims.prepare(asked)))
        return response

    def NodeUnprepareResources(self, request: Any, context: Any) -> api.NodeUnprepareResourcesResponse:  # noqa: N802
        """Forget claims, whose containers have ended."""
        response = api.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            _tried(claim, response.claims[claim.uid], self._claims.unprepare)
        return response

    def add_to(self, server: grpc.Server) -> None:
        """Serve in all versions."""
        handlers = {name: self._handler(name) for name in METHODS}
        services = (f"k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin" for version in VERSIONS)
        server.add_generic_rpc_handlers(
            tuple(grpc.method_handlers_generic_handler(name, handlers) for name in services)
        )

    def _handler(self, name: str) -> grpc.RpcMethodHandler:
        decode = getattr(api, f"{name}Request").FromString
        encode = getattr(api, f"{name}Response").SerializeToString
        return grpc.unary_unary_rpc_method_handler(getattr(self, name), decode, encode)


def _devices(record: ClaimRecord) -> api.NodePrepareResourceResponse:
    device = api.Device(
        request_names=[record.request],
        pool_name=record.pool,
        device_name=record.device,
        cdi_device_ids=record.cdi_devices,
    )
    return api.NodePrepareResourceResponse(devices=[device])


def _tried(claim: api.Claim, response: Any, made: Callable[[api.Claim], Any]) -> None:
    """Put what ``made`` returns into a claim's response, or why it failed: that text gets into the pod's events."""
    try:
        result = made(claim)
    except Exception as error:  # noqa: BLE001 - without a text the pod's owner learns nothing
        response.error = f"{DRIVER}: {error}"
        log.warning("claim %s/%s: %s", claim.namespace, claim.name, error)
    else:
        response.SetInParent() if result is None else response.MergeFrom(result)


class RegistrationServicer(registration_services.RegistrationServicer):
    """Tells the kubelet which driver serves at ``endpoint``."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def GetInfo(self, request: Any, context: Any) -> registration.PluginInfo:  # noqa: N802
        """Return name and versions."""
        versions = [f"{version}.DRAPlugin" for version in VERSIONS]
        about = {"type": "DRAPlugin", "name": DRIVER, "endpoint": self._endpoint}
        return registration.PluginInfo(**about, supported_versions=versions)

    def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Log whether the kubelet takes the driver."""
        if request.plugin_registered:
            log.info("the kubelet has registered %s", DRIVER)
        else:
            log.error("the kubelet does not register %s: %s", DRIVER, request.error)
        return registration.RegistrationStatusResponse()
