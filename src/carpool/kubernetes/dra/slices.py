"""The node's devices as a ResourceSlice, for the scheduler: published anew whenever they change, or it is gone."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from carpool.kubernetes.dra.api_server import GROUP, KubernetesApi
from carpool.kubernetes.dra.claims import DRIVER, BadClaim
from carpool.protocol.api import DeviceInfo

log = logging.getLogger(__name__)
SLICES = f"{GROUP}/resourceslices"
#: Says of a slice what it was made from: the API server may write numbers in another way, and drop fields.
DIGEST = f"{DRIVER}/digest"
#: Time after which a slice is compared with what it should be, though the devices have not changed.
RECHECK_S = 60.0
DRAINED, DOWN = f"{DRIVER}/drained", f"{DRIVER}/daemon-down"
MIB = 1 << 20
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class SlicePublisher:
    """``devices``: returns those of the daemon, or None while it does not answer."""

    def __init__(
        self, api_server: KubernetesApi, node: str, shares: int, devices: Callable[[], Sequence[DeviceInfo] | None]
    ) -> None:
        self._api_server, self._node, self._shares, self._devices = api_server, node, shares, devices
        self._known: list[DeviceInfo] = []
        self._published = ("", 0.0)  # digest and time

    def publish(self) -> None:
        """Tell the API server of the devices, unless it knows.  Raises ApiServerError."""
        if (devices := self._wanted()) is None:
            return
        digest = hashlib.sha256(json.dumps(devices).encode()).hexdigest()
        if self._published[0] != digest or time.monotonic() - self._published[1] > RECHECK_S:
            self._reconcile(devices, digest)
            self._published = (digest, time.monotonic())

    def _wanted(self) -> list[dict[str, Any]] | None:
        """Return the devices as the API server is to know them; None: leave it as it is."""
        devices = self._devices()
        if devices is None and not self._known:
            return None
        self._known = self._known if devices is None else list(devices)
        return [device_of_slice(info, self._shares, down=devices is None) for info in self._known]

    def _reconcile(self, devices: list[dict[str, Any]], digest: str) -> None:
        name = f"{self._node}-{DRIVER}"
        found = self._api_server.get(f"{SLICES}/{name}")
        if found is None:
            metadata = {"name": name, "annotations": {DIGEST: digest}, "ownerReferences": [self._owner()]}
            self._check(self._api_server.post(SLICES, self._slice(metadata, devices, 1)))
        elif (notes := found["metadata"].get("annotations", {})).get(DIGEST) != digest or _dropped(found):
            metadata = found["metadata"] | {"annotations": notes | {DIGEST: digest}}
            generation = found["spec"]["pool"]["generation"] + 1
            self._check(self._api_server.put(f"{SLICES}/{name}", self._slice(metadata, devices, generation)))

    def _owner(self) -> dict[str, Any]:
        """Return the node, with which the slice goes."""
        node = self._api_server.get(f"/api/v1/nodes/{quote(self._node, safe='')}")
        if node is None:
            raise BadClaim(f"the cluster has no node {self._node!r}: give --node")
        return {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": node["metadata"]["uid"]}

    def _slice(self, metadata: dict[str, Any], devices: list[dict[str, Any]], generation: int) -> dict[str, Any]:
        pool = {"name": self._node, "generation": generation, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": self._node, "pool": pool, "devices": devices}
        about = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
        return {**about, "metadata": metadata, "spec": spec}

    def _check(self, made: dict[str, Any]) -> None:
        log.info("published %s", ", ".join(device["name"] for device in made["spec"].get("devices", [])) or "no device")
        if _dropped(made):
            text = "the API server drops allowMultipleAllocations, so one claim takes a whole device"
            log.error("%s: switch the feature gate DRAConsumableCapacity on (Kubernetes 1.34 and 1.35)", text)


def _dropped(found: dict[str, Any]) -> bool:
    """Return whether the API server has left out what it does not know."""
    devices = found["spec"].get("devices", [])
    return any("allowMultipleAllocations" not in device for device in devices)


def device_of_slice(info: DeviceInfo, shares: int, *, down: bool) -> dict[str, Any]:
    """Return a device for a slice.  Raises BadClaim where its id is no name for Kubernetes.

    ``shares`` bounds how many claims share it.  A claim may ask for ``memory`` up to the device's, which is a hint and
    no limit: there is enough of it for as many claims as there are shares.
    """
    if _LABEL.fullmatch(info.id) is None:
        raise BadClaim(f"Kubernetes takes no device {info.id!r}: small letters, digits and dashes, 63 at most")
    size = info.capacity_bytes // MIB
    taints = {DRAINED: bool(info.drained), DOWN: down}
    return {
        "name": info.id,
        "allowMultipleAllocations": True,
        "attributes": _attributes(info),
        "capacity": {"shares": _capacity(shares, shares, "1"), "memory": _capacity(size * shares, size, "0", "Mi")},
        "taints": [{"key": key, "effect": "NoSchedule"} for key, wanted in taints.items() if wanted],
    }


def _attributes(info: DeviceInfo) -> dict[str, Any]:
    uuid = {"uuid": {"string": info.uuid}} if info.uuid else {}
    return {"kind": {"string": info.kind}, "memoryMiB": {"int": info.capacity_bytes // MIB}} | uuid


def _capacity(value: int, most: int, least: str, unit: str = "") -> dict[str, Any]:
    """Return a capacity of which a claim takes ``least`` without asking."""
    bounds = {"min": least, "max": f"{most}{unit}"}
    return {"value": f"{value}{unit}", "requestPolicy": {"default": least, "validRange": bounds}}
