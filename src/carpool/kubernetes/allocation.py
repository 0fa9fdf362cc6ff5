"""Mounts, variables and devices that the kubelet gives to a container for its processes to join.

Shares of devices, which the kubelet counts, and gives to containers.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from carpool.kubernetes.v1beta1 import deviceplugin_pb2 as api
from carpool.protocol.session import JoinOptions

#: Separates a device's id, which does not contain it, from the number of the share.
BETWEEN = "::"
#: Most characters of an id in the kubelet's API.
LONGEST = 63


class Standing(NamedTuple):
    """A device for containers.  ``healthy``: the daemon has the device, and places jobs there; ``uuid``: of a GPU."""

    healthy: bool
    free_bytes: int = 0
    uuid: str = ""


class NoShare(ValueError):
    """The kubelet asks for shares that cannot be given; the text says why."""


def share_ids(device: str, count: int) -> list[str]:
    """Return the ids of a device's shares.  Raises NoShare where the device's id is too long for the kubelet."""
    ids = [f"{device}{BETWEEN}{number}" for number in range(count)]
    if len(ids[-1]) > LONGEST:
        raise NoShare(f"the id of device {device!r} is too long for the kubelet, which takes {LONGEST} characters")
    return ids


def device_of(shares: Iterable[str]) -> str:
    """Return the one device that the shares of a container belong to.  Raises NoShare."""
    devices = sorted({share.partition(BETWEEN)[0] for share in shares})
    if len(devices) != 1:
        named = ", ".join(devices) or "none"
        raise NoShare(f"a container has one device, and these shares are of {named}; ask for fewer shares")
    return devices[0]


def preferred(
    available: Sequence[str], included: Sequence[str], size: int, devices: Mapping[str, Standing]
) -> list[str]:
    """Choose ``size`` shares of one device: the device of ``included``, else the one with most free memory.

    Returns fewer where no device has as many.
    """
    device = included[0].partition(BETWEEN)[0] if included else _roomiest(available, size, devices)
    more = [share for share in available if share.partition(BETWEEN)[0] == device and share not in included]
    return [*included, *more][: max(size, len(included))]


def _roomiest(available: Iterable[str], size: int, devices: Mapping[str, Standing]) -> str:
    """Choose a device: first by having ``size`` shares, then by health, free memory and free shares."""
    left = Counter(share.partition(BETWEEN)[0] for share in available)
    unknown = Standing(healthy=False)

    def order(device: str) -> tuple[bool, bool, int, int]:
        standing = devices.get(device, unknown)
        return (left[device] >= size, standing.healthy, standing.free_bytes, left[device])

    return max(sorted(left), key=order, default="")


#: Information of NVIDIA's driver about each GPU of this machine.
DRIVER = Path("/proc/driver/nvidia/gpus")
#: Device nodes that programs open besides that of their GPU; not every machine has all of them.
SHARED_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


class GpuAccess(enum.StrEnum):
    """The access of a container to its GPU: through NVIDIA's runtime, by plain device nodes, or by CDI."""

    RUNTIME = "runtime"
    NODES = "nodes"
    CDI = "cdi"


class Given(NamedTuple):
    """``mounts``: paths of this machine and of the container, read-only; ``gpu``: a uuid, or empty."""

    mounts: Iterable[tuple[Path, Path]]
    variables: Mapping[str, str]
    gpu: str


#: By the options with which its processes join, a device among them: the needs of a container.
NeedsOf = Callable[[JoinOptions], Given]


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
