"""Names, numbers and bounds that others have published, as far as the driver and the manifests use them.

Read on 2026-12-01: ``k8s.io/api/resource/v1/types.go``, ``k8s.io/kubelet/pkg/apis/dra/{v1,v1beta1}/api.proto``,
``k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.proto`` (kubernetes/kubernetes, main), and ``specs-go/config.go`` of
container-device-interface.  A change of ours that leaves them fails; a change of theirs has to be read again.
"""

from __future__ import annotations

import re
from typing import Any

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i)?")
IDENTIFIER = re.compile(r"([a-z0-9.-]+/)?[A-Za-z_][A-Za-z0-9_]{0,31}")
#: Fields of a type: a type of Python, the name of another type here, [of a list], or {of a map}.
Fields = dict[str, Any]
ANY = object
TYPES: dict[str, Fields] = {
    "Metadata": {
        "name": str, "generateName": str, "namespace": str, "uid": str, "resourceVersion": str, "generation": int,
        "creationTimestamp": str, "labels": {str}, "annotations": {str}, "ownerReferences": ["OwnerReference"],
    },
    "OwnerReference": {"apiVersion": str, "kind": str, "name": str, "uid": str, "controller": bool},
    "ResourceSlice": {"apiVersion": str, "kind": str, "metadata": "Metadata", "spec": "ResourceSliceSpec"},
    "ResourceSliceSpec": {
        "driver": str, "pool": "ResourcePool", "nodeName": str, "nodeSelector": ANY, "allNodes": bool,
        "devices": ["Device"], "perDeviceNodeSelection": bool, "sharedCounters": ANY,
    },
    "ResourcePool": {"name": str, "generation": int, "resourceSliceCount": int},
    "Device": {
        "name": str, "attributes": {"DeviceAttribute"}, "capacity": {"DeviceCapacity"}, "taints": ["DeviceTaint"],
        "bindsToNode": bool, "bindingConditions": [str], "allowMultipleAllocations": bool,
    },
    "DeviceAttribute": {"int": int, "bool": bool, "string": str, "version": str},
    "DeviceCapacity": {"value": QUANTITY, "requestPolicy": "CapacityRequestPolicy"},
    "CapacityRequestPolicy": {"default": QUANTITY, "validValues": [QUANTITY], "validRange": "CapacityRange"},
    "CapacityRange": {"min": QUANTITY, "max": QUANTITY, "step": QUANTITY},
    "DeviceTaint": {"key": str, "value": str, "effect": str, "timeAdded": str},
    "ResourceClaim": {
        "apiVersion": str, "kind": str, "metadata": "Metadata", "spec": "ResourceClaimSpec",
        "status": "ResourceClaimStatus",
    },
    "ResourceClaimTemplate": {"apiVersion": str, "kind": str, "metadata": "Metadata", "spec": "TemplateSpec"},
    "TemplateSpec": {"metadata": "Metadata", "spec": "ResourceClaimSpec"},
    "ResourceClaimSpec": {"devices": "DeviceClaim"},
    "DeviceClaim": {"requests": ["DeviceRequest"], "constraints": ANY, "config": ["DeviceClaimConfiguration"]},
    "DeviceRequest": {"name": str, "exactly": "ExactDeviceRequest", "firstAvailable": ANY},
    "ExactDeviceRequest": {
        "deviceClassName": str, "selectors": ["DeviceSelector"], "allocationMode": str, "count": int,
        "adminAccess": bool, "tolerations": ANY, "capacity": "CapacityRequirements",
    },
    "CapacityRequirements": {"requests": {QUANTITY}},
    "DeviceSelector": {"cel": "CELDeviceSelector"},
    "CELDeviceSelector": {"expression": str},
    "DeviceClaimConfiguration": {"requests": [str], "opaque": "OpaqueDeviceConfiguration"},
    "OpaqueDeviceConfiguration": {"driver": str, "parameters": ANY},
    "ResourceClaimStatus": {"allocation": "AllocationResult", "reservedFor": ANY, "devices": ANY},
    "AllocationResult": {"devices": "DeviceAllocationResult", "nodeSelector": ANY, "allocationTimestamp": str},
    "DeviceAllocationResult": {
        "results": ["DeviceRequestAllocationResult"], "config": ["DeviceAllocationConfiguration"],
    },
    "DeviceRequestAllocationResult": {
        "request": str, "driver": str, "pool": str, "device": str, "adminAccess": bool, "tolerations": ANY,
        "shareID": str, "consumedCapacity": {QUANTITY},
    },
    "DeviceAllocationConfiguration": {"source": str, "requests": [str], "opaque": "OpaqueDeviceConfiguration"},
    "DeviceClass": {"apiVersion": str, "kind": str, "metadata": "Metadata", "spec": "DeviceClassSpec"},
    "DeviceClassSpec": {
        "selectors": ["DeviceSelector"], "config": ["DeviceClassConfiguration"], "extendedResourceName": str,
    },
    "DeviceClassConfiguration": {"opaque": "OpaqueDeviceConfiguration"},
    "CdiSpec": {
        "cdiVersion": str, "kind": str, "annotations": {str}, "devices": ["CdiDevice"],
        "containerEdits": "ContainerEdits",
    },
    "CdiDevice": {"name": str, "annotations": {str}, "containerEdits": "ContainerEdits"},
    "ContainerEdits": {"env": [str], "deviceNodes": ["DeviceNode"], "hooks": ANY, "mounts": ["CdiMount"]},
    "DeviceNode": {
        "path": str, "hostPath": str, "type": str, "major": int, "minor": int, "fileMode": int, "permissions": str,
        "uid": int, "gid": int,
    },
    "CdiMount": {"hostPath": str, "containerPath": str, "options": [str], "type": str},
}  # fmt: skip
SERVICES = {
    "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin": {
        "NodePrepareResources": ("NodePrepareResourcesRequest", "NodePrepareResourcesResponse"),
        "NodeUnprepareResources": ("NodeUnprepareResourcesRequest", "NodeUnprepareResourcesResponse"),
    },
    "pluginregistration.Registration": {
        "GetInfo": ("InfoRequest", "PluginInfo"),
        "NotifyRegistrationStatus": ("RegistrationStatus", "RegistrationStatusResponse"),
    },
}
#: Numbers of the fields of messages.
MESSAGES = {
    "Claim": {"namespace": 1, "uid": 2, "name": 3},
    "Device": {"request_names": 1, "pool_name": 2, "device_name": 3, "cdi_device_ids": 4},
    "NodePrepareResourcesRequest": {"claims": 1},
    "NodePrepareResourcesResponse": {"claims": 1},
    "NodePrepareResourceResponse": {"devices": 1, "error": 2},
    "NodeUnprepareResourcesRequest": {"claims": 1},
    "NodeUnprepareResourcesResponse": {"claims": 1},
    "NodeUnprepareResourceResponse": {"error": 1},
    "PluginInfo": {"type": 1, "name": 2, "endpoint": 3, "supported_versions": 4},
    "RegistrationStatus": {"plugin_registered": 1, "error": 2},
    "RegistrationStatusResponse": {},
    "InfoRequest": {},
}
EFFECTS, SOURCES = {"None", "NoSchedule", "NoExecute"}, {"FromClass", "FromClaim"}
CEL_CHARACTERS, PARAMETER_BYTES = 10 * 1024, 10 * 1024
#: Of one slice whose devices have taints; of one device; of an attribute's text.
DEVICES, ATTRIBUTES, ATTRIBUTE_CHARACTERS = 64, 32, 64


def unknown(value: Any, kind: Any, path: str = "") -> list[str]:
    """The places in a value that are not as published."""
    if kind is ANY:
        return []
    if isinstance(kind, str):
        fields = TYPES[kind]
        if not isinstance(value, dict):
            return [f"{path} is no {kind}"]
        return [
            text
            for name, item in value.items()
            for text in (
                unknown(item, fields[name], f"{path}.{name}") if name in fields else [f"{path}.{name}: unknown"]
            )
        ]
    if isinstance(kind, list):
        return [text for number, item in enumerate(value) for text in unknown(item, kind[0], f"{path}[{number}]")]
    if isinstance(kind, set):
        return [text for name, item in value.items() for text in unknown(item, next(iter(kind)), f"{path}.{name}")]
    if isinstance(kind, re.Pattern):
        return [] if isinstance(value, str) and kind.fullmatch(value) else [f"{path}: {value!r}"]
    return [] if type(value) is kind else [f"{path}: {value!r} is no {kind.__name__}"]


def refused(slice_: dict[str, Any]) -> list[str]:
    """Why an API server would not take a slice, as far as that can be said from the published comments."""
    spec = slice_["spec"]
    wrong = unknown(slice_, "ResourceSlice")
    wrong += [] if len(spec["devices"]) <= DEVICES else ["too many devices"]
    return wrong + [text for device in spec["devices"] for text in _refused_device(device)]


def _refused_device(device: dict[str, Any]) -> list[str]:
    names = [*device.get("attributes", {}), *device.get("capacity", {})]
    checks = {
        f"name {device['name']}": bool(LABEL.fullmatch(device["name"])),
        f"names {names}": len(names) <= ATTRIBUTES and all(map(IDENTIFIER.fullmatch, names)),
        "attributes": all(_one_short_value(value) for value in device.get("attributes", {}).values()),
        "taints": all(taint["effect"] in EFFECTS for taint in device.get("taints", [])),
    }
    return [what for what, fine in checks.items() if not fine]


def _one_short_value(value: dict[str, Any]) -> bool:
    return len(value) == 1 and len(str(value.get("string", ""))) <= ATTRIBUTE_CHARACTERS
