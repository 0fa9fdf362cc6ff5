"""The protocol of devices whose memory exists from the first use of a page on: host devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

from carpool.core.model import LaneId
from carpool.devices.base import BankId, DeviceBackend, Extent


class WeightMemory(Protocol):
    """Banks of a device for weights: sparse files with the pages that earlier weights have left."""

    def take_for(self, owner: int, size: int) -> BankId:
        """Take a bank for weights of ``size`` bytes, until `free`.  Raises DeviceError if the memory cannot be had."""
        ...

    def hold_for(self, bank: BankId, size: int) -> None:
        """Mark a bank as held: weights were found in it.  Raises DeviceError for an unknown bank."""
        ...

    def free(self, bank: BankId) -> None:
        """Free a bank; its pages stay, for the next weights of the owner, until another job needs them."""
        ...

    def abandon(self, bank: BankId) -> None:
        """Never use the bank again: its memory is free when the processes that have it mapped have closed it."""
        ...

    def files(self, bank: BankId) -> Sequence[Extent]:
        """Return the one file of a bank.  Raises DeviceError for an unknown bank."""
        ...

    def check(self, bank: BankId, owner: int, files: Sequence[Extent]) -> None:
        """Check, before `adopt`, that files can be that bank of that owner.  Raises DeviceError."""
        ...

    def adopt(self, bank: BankId, owner: int, files: Sequence[Extent]) -> None:
        """Take over a bank of an earlier daemon, free, and own the descriptors; duplicates of known ones are closed."""
        ...

    def owner(self, bank: BankId) -> int:
        """Return the uid of a bank's owner.  Raises DeviceError for an unknown bank."""
        ...

    def owners(self) -> set[int]:
        """Return the owners of banks for weights."""
        ...

    def close(self, owner: int | None = None) -> None:
        """Close the banks of an owner none of whose processes computes with weights any more; None: of all owners."""
        ...


@dataclass(frozen=True, slots=True)
class Overuse:
    """By how many bytes lanes and banks have more pages than jobs may have made, by number; others are left out."""

    lanes: Mapping[LaneId, int]
    banks: Mapping[BankId, int]
    weights: Mapping[BankId, int]


class PagedDevice(DeviceBackend, Protocol):
    """A device whose memory exists from the first use of a page on.

    Nothing stops a job at its limit, so existing pages are counted (`overuse`).
    """

    weights: WeightMemory

    def check_lane(self, fd: int) -> None:
        """Check, before `adopt_lane`, that ``fd`` can be a lane.  Raises DeviceError."""
        ...

    def overuse(self, granted: Mapping[BankId, int]) -> Overuse:
        """Return the overuse of lanes and banks.  ``granted``: bytes that the holder of each bank may use.

        Pages that a bank had when it was taken, or freed, may still be there.
        """
        ...

    def abandon_bank(self, bank: BankId) -> None:
        """Never use a free bank again: its memory is free when the owner's processes have unmapped it."""
        ...


def in_pages(device: DeviceBackend) -> TypeGuard[PagedDevice]:
    """Whether a device's memory exists from the first use of a page on (host devices)."""
    return device.kind == "host"
