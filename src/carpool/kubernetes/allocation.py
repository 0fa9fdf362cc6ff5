"""Mounts, variables and devices that the kubelet gives to a container for its processes to join."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from carpool.kubernetes.shares import NoShare
from carpool.kubernetes.v1beta1 import deviceplugin_pb2 as api

#: Information of NVIDIA's driver about each GPU of this machine.
DRIVER = Path("/proc/driver/nvidia/gpus")
#: Device nodes that programs open besides that of their GPU; not every machine has all of them.
SHARED_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


class GpuAccess(enum.StrEnum):
    """How a container gets to its GPU: through NVIDIA's runtime, by plain device nodes, or by CDI."""

    RUNTIME = "runtime"
    NODES = "nodes"
    CDI = "cdi"


class Given(NamedTuple):
    """``mounts``: paths of this machine and of the container, read-only; ``gpu``: a uuid, or empty."""

    mounts: Iterable[tuple[Path, Path]]
    variables: Mapping[str, str]
    gpu: str


#: By the id of a device: the needs of a container whose processes join and use the device.
NeedsOf = Callable[[str], Given]


def answer(given: Given, access: GpuAccess, driver: Path = DRIVER) -> api.ContainerAllocateResponse:
    """Return the answer for the kubelet.  Raises NoShare if the GPU's device node is unknown."""
    mounts = [api.Mount(host_path=str(here), container_path=str(there), read_only=True) for here, there in given.mounts]
    response = api.ContainerAllocateResponse(envs=dict(given.variables), mounts=mounts)
    if given.gpu and access is GpuAccess.RUNTIME:
        response.envs["NVIDIA_VISIBLE_DEVICES"] = given.gpu
    if given.gpu and access is GpuAccess.CDI:
        response.cdi_devices.add(name=f"nvidia.com/gpu={given.gpu}")
    if given.gpu and access is GpuAccess.NODES:
        for node in _nodes(given.gpu, driver):
            response.devices.add(host_path=node, container_path=node, permissions="rw")
    return response


def _nodes(uuid: str, driver: Path) -> list[str]:
    shared = [f"/dev/{name}" for name in SHARED_NODES if Path("/dev", name).exists()]
    return [f"/dev/nvidia{_minor(uuid, driver)}", *shared]


def _minor(uuid: str, driver: Path) -> int:
    for file in driver.glob("*/information"):
        fields = dict(line.partition(":")[::2] for line in file.read_text().splitlines())
        if fields.get("GPU UUID", "").strip() == uuid:
            return int(fields["Device Minor"])
    raise NoShare(f"{driver} names no GPU {uuid}: its device node is unknown; try --gpus runtime or cdi")
