"""Descriptors of memory that the daemon sends to jobs: the owner of each, and the only function that lets them out.

The daemon of several users holds the memory of all of them.  Code that sends a descriptor to a job's process or shim
names the memory's owner, as noted when the memory was made, and sends what `release` returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from carpool.devices.base import DeviceError


class WrongOwner(DeviceError):
    """Memory of one user was about to be sent to another user: a bug in the daemon.  Nothing was sent."""


@dataclass(frozen=True, slots=True)
class OwnedFd:
    """A descriptor of memory that only processes of the user ``owner`` (a uid) may get."""

    owner: int
    fd: int


def release(held: Iterable[OwnedFd], to: int | None) -> list[int]:
    """Return the descriptors for a process of the user ``to``.  Raises WrongOwner if any belongs to another user."""
    descriptors = []
    for each in held:
        if each.owner != to:
            raise WrongOwner(f"memory of uid {each.owner} is not sent to a process of uid {to}")
        descriptors.append(each.fd)
    return descriptors
