"""Shares of devices, which the kubelet counts, and gives to containers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

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
