"""What the daemon asks of devices whose memory exists from the first use of a page on: host devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

from carpool.core.model import LaneId
from carpool.devices.base import BankId, DeviceBackend, Extent


class WeightMemory(Protocol):
    """Banks of a device for weights: sparse files with the pages that weights before have left."""

    def take_for(self, owner: int, size: int) -> BankId:
        """One for weights of so many bytes, until `free`.  Raises DeviceError if the memory cannot be had."""
        ...

    def hold_for(self, bank: BankId, size: int) -> None:
        """Weights were found in it.  Raises DeviceError for an unknown bank."""
        ...

    def free(self, bank: BankId) -> None:
        """Its pages stay, for the next weights of the owner, until another job needs them."""
        ...

    def abandon(self, bank: BankId) -> None:
        """The bank is not used again: its memory is free when the processes that have it mapped have closed it."""
        ...

    def files(self, bank: BankId) -> Sequence[Extent]:
        """The one that it has.  Raises DeviceError for an unknown bank."""
        ...

    def check(self, bank: BankId, owner: int, files: Sequence[Extent]) -> None:
        """Before `adopt`: whether it can be that bank of that owner.  Raises DeviceError."""
        ...

    def adopt(self, bank: BankId, owner: int, files: Sequence[Extent]) -> None:
        """Take over a bank of an earlier daemon, free.  Owns the descriptors; duplicates of known ones are closed."""
        ...

    def owner(self, bank: BankId) -> int:
        """Raises DeviceError for an unknown bank."""
        ...

    def owners(self) -> set[int]:
        """The owners of banks for weights."""
        ...

    def close(self, owner: int | None = None) -> None:
        """No process of that owner computes with weights any more."""
        ...


@dataclass(frozen=True, slots=True)
class Overuse:
    """By how many bytes memory has more pages than jobs may have made there, by number; the rest is left out."""

    lanes: Mapping[LaneId, int]
    banks: Mapping[BankId, int]
    weights: Mapping[BankId, int]


class PagedDevice(DeviceBackend, Protocol):
    """A device whose memory exists from the first use of a page on.

    Nothing stops a job at the end of what it has been granted: what is there is counted (`overuse`).
    """

    weights: WeightMemory

    def check_lane(self, fd: int) -> None:
        """Before `adopt_lane`: whether ``fd`` can be a lane.  Raises DeviceError."""
        ...

    def overuse(self, granted: Mapping[BankId, int]) -> Overuse:
        """``granted``: bytes that the holder of each bank may use.

        Pages that a bank had when it was taken, or freed, may still be there.
        """
        ...

    def abandon_bank(self, bank: BankId) -> None:
        """A free bank is not used again: it is its owner's own until the owner's processes let go of it."""
        ...


def in_pages(device: DeviceBackend) -> TypeGuard[PagedDevice]:
    """Whether a device's memory exists from the first use of a page on (host devices)."""
    return device.kind == "host"
