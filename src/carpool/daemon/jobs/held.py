"""Descriptors of memory on their way out of the daemon: whose they are, and the one way out.

The daemon of several users holds the memory of all of them.  Whatever sends a descriptor to a job's process or shim
says whose the memory is, from what the daemon noted when the memory was made, and sends what `let_out` returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from carpool.devices.base import DeviceError


class WrongOwner(DeviceError):
    """Memory of one user was about to be sent to another one: a mistake of the daemon's.  Nothing was sent."""


@dataclass(frozen=True, slots=True)
class Held:
    """A descriptor of memory that only processes of ``owner``, a uid, may have."""

    owner: int
    fd: int


def let_out(held: Iterable[Held], to: int | None) -> list[int]:
    """The descriptors, for a process of the user ``to``.  Raises WrongOwner if any is not that user's."""
    descriptors = []
    for each in held:
        if each.owner != to:
            raise WrongOwner(f"memory of uid {each.owner} is not sent to a process of uid {to}")
        descriptors.append(each.fd)
    return descriptors
