"""Shares of devices: what the kubelet counts, and gives to containers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

#: Between a device and the number of its share; no device has it in its id.
BETWEEN = "::"
#: Of an id, in the kubelet's API.
LONGEST = 63


class Standing(NamedTuple):
    """A device as containers may use it.  ``healthy``: the daemon has it, and places jobs there; ``uuid``: of a GPU."""

    healthy: bool
    free_bytes: int = 0
    uuid: str = ""


class NoShare(ValueError):
    """The kubelet asks for what cannot be given; the text says why."""


def share_ids(device: str, count: int) -> list[str]:
    """Raises NoShare where the device's id is too long for the kubelet."""
    ids = [f"{device}{BETWEEN}{number}" for number in range(count)]
    if len(ids[-1]) > LONGEST:
        raise NoShare(f"the id of device {device!r} is too long for the kubelet, which takes {LONGEST} characters")
    return ids


def device_of(shares: Iterable[str]) -> str:
    """The one device that the shares of a container belong to.  Raises NoShare."""
    devices = sorted({share.partition(BETWEEN)[0] for share in shares})
    if len(devices) != 1:
        named = ", ".join(devices) or "none"
        raise NoShare(f"a container has one device, and these shares are of {named}; ask for fewer shares")
    return devices[0]


def preferred(
    available: Sequence[str], included: Sequence[str], size: int, devices: Mapping[str, Standing]
) -> list[str]:
    """``size`` shares of one device: that of those that have to be ``included``, else the one with most free memory.

    Fewer where no device has as many.
    """
    device = included[0].partition(BETWEEN)[0] if included else _roomiest(available, size, devices)
    more = [share for share in available if share.partition(BETWEEN)[0] == device and share not in included]
    return [*included, *more][: max(size, len(included))]


def _roomiest(available: Iterable[str], size: int, devices: Mapping[str, Standing]) -> str:
    """Devices that have as many shares come first, then by free memory; by free shares where that is the same."""
    left = Counter(share.partition(BETWEEN)[0] for share in available)
    unknown = Standing(healthy=False)

    def order(device: str) -> tuple[bool, bool, int, int]:
        standing = devices.get(device, unknown)
        return (left[device] >= size, standing.healthy, standing.free_bytes, left[device])

    return max(sorted(left), key=order, default="")
