"""Banks (device buffers) of a device: owners, holders, the choice for a job; and code for all kinds of devices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from carpool.core.model import DeviceId, JobId
from carpool.devices.base import BankId, DeviceError, Extent
from carpool.devices.host_stores import Stores


class BufferMemory(Protocol):
    """The memory of which a kind of device makes banks."""

    def create(self, name: str) -> list[Extent]:
        """Create the files of a new bank without content.  Raises DeviceError."""

    def used(self, files: Sequence[Extent]) -> int:
        """Return the bytes of the device that a bank's files take."""

    def emptying(self, files: list[Extent], size: int) -> Callable[[], None]:
        """Return a call that gives ``size`` bytes back, or all, the last first.  The files may be closed meanwhile."""

    def check(self, files: Sequence[Extent], known: Sequence[Extent] | None) -> None:
        """Raise DeviceError if ``files`` cannot be a bank, or not the known one."""

    def adopt(self, files: list[Extent], more: Sequence[Extent]) -> None:
        """Take ownership of ``more``: add files that the bank lacks, and close the others."""

    def close(self, files: Sequence[Extent]) -> None:
        """Close a bank's files."""


@dataclass(slots=True)
class _Bank:
    """``busy``: held by a job, or being emptied.  ``left``: bytes in the bank when it was last taken or freed."""

    number: BankId
    owner: int
    files: list[Extent]
    busy: bool
    left: int = 0


class Banks:
    """All banks of a device.  Numbers only increase, so that an old number never means another bank.

    Listeners (`hear_cuts`) are told of a free bank that gives memory back, before the memory is given.
    """

    def __init__(self, name: str, memory: BufferMemory) -> None:
        self._name = name
        self._memory = memory
        self._next: BankId = 1
        self._of: dict[BankId, _Bank] = {}
        self._heard: list[Callable[[BankId], None]] = []

    def hear_cuts(self, heard: Callable[[BankId], None]) -> None:
        """Add a listener, which gets the number of the bank."""
        self._heard.append(heard)

    def take(self, owner: int, wanted: int, last: BankId | None) -> BankId:
        """Take a free bank of the owner, or make one; see `DeviceBackend.take_bank`."""
        free = [bank for bank in self._of.values() if bank.owner == owner and not bank.busy]
        if not wanted:
            free = [bank for bank in free if not self._used(bank)]
        bank = max(free, key=lambda bank: self._usefulness(bank, wanted, last), default=None) or self._create(owner)
        self._pass_on(bank, busy=True)
        return bank.number

    def free(self, bank: BankId) -> None:
        """Free a bank; an unknown number is not an error."""
        if bank in self._of:
            self._pass_on(self._of[bank], busy=False)

    def hold(self, bank: BankId) -> None:
        """Mark a bank as held.  Raises DeviceError."""
        self._pass_on(self._known(bank), busy=True)

    def abandon(self, bank: BankId) -> None:
        """Never use the bank again: its memory is free when the processes that have it mapped have closed it."""
        self._memory.close(self._of.pop(bank).files)

    def owner(self, bank: BankId) -> int:
        """Return the uid of the bank's owner.  Raises DeviceError."""
        return self._known(bank).owner

    def files(self, bank: BankId) -> list[Extent]:
        """Return the bank's own list: an extent that is added to the list belongs to the bank.  Raises DeviceError."""
        return self._known(bank).files

    def close(self, owner: int | None = None) -> None:
        """Close the banks of an owner; without an owner, all banks."""
        for bank in tuple(self._of.values()):
            if owner is None or bank.owner == owner:
                del self._of[bank.number]
                self._memory.close(bank.files)

    def check(self, bank: BankId, owner: int, files: Sequence[Extent]) -> None:
        """Raise DeviceError if kept files cannot be adopted as this bank: they could be anything."""
        known = self._of.get(bank)
        try:
            if bank <= 0 or (known is not None and known.owner != owner):
                raise DeviceError("wrong number or owner")
            self._memory.check(files, None if known is None else known.files)
        except DeviceError as error:
            raise DeviceError(f"the kept memory is not bank {self._name}{bank}: {error}") from None

    def adopt(self, bank: BankId, owner: int, files: Sequence[Extent]) -> None:
        """Take over a bank of an earlier daemon, and own its files."""
        known = self._of.setdefault(bank, _Bank(bank, owner, [], busy=False))
        self._memory.adopt(known.files, files)
        known.left = self._used(known)
        self._next = max(self._next, bank + 1)

    def owners(self) -> set[int]:
        """The owners of all banks."""
        return {bank.owner for bank in self._of.values()}

    def used(self) -> int:
        """Return the bytes of all banks."""
        return sum(self._used(bank) for bank in self._of.values())

    def left(self, granted: Mapping[BankId, int]) -> int:
        """Return the bytes of banks beyond what is ``granted`` to their holders; all bytes of free banks count."""
        return sum(max(0, self._used(bank) - granted.get(bank.number, 0)) for bank in self._of.values())

    def overuse(self, allowed: Mapping[BankId, int], most: int) -> dict[BankId, int]:
        """Return the bytes of banks beyond what is ``allowed``, or was left in them, if that is more.

        At most ``most`` bytes can have been left.  Bytes of those that have been given back may not come again.
        """
        beyond: dict[BankId, int] = {}
        for bank in self._of.values():
            used = self._used(bank)
            bank.left = min(bank.left, used, most)
            if (size := used - max(allowed.get(bank.number, 0), bank.left)) > 0:
                beyond[bank.number] = size
        return beyond

    def emptying(self, size: int) -> Callable[[], None] | None:
        """Return a call that gives back up to ``size`` bytes of one free bank; None if no free bank has memory."""
        free = [bank for bank in self._of.values() if not bank.busy and self._used(bank)]
        bank = min(free, key=lambda bank: (self._used(bank), bank.number), default=None)
        if bank is None:
            return None
        work = self._memory.emptying(bank.files, size)
        bank.busy = True
        for heard in self._heard:
            heard(bank.number)
        return lambda: _empty(bank, work)

    def _create(self, owner: int) -> _Bank:
        files = self._memory.create(f"{self._name}{self._next}")
        bank = self._of[self._next] = _Bank(self._next, owner, files, busy=False)
        self._next += 1
        return bank

    def _pass_on(self, bank: _Bank, *, busy: bool) -> None:
        bank.busy, bank.left = busy, self._used(bank)

    def _known(self, bank: BankId) -> _Bank:
        try:
            return self._of[bank]
        except KeyError:
            raise DeviceError(f"there is no bank {self._name}{bank}") from None

    def _used(self, bank: _Bank) -> int:
        return self._memory.used(bank.files)

    def _usefulness(self, bank: _Bank, wanted: int, last: BankId | None) -> tuple[int, bool, int, int]:
        """Return the bank's rank for a job: first pages that exist, then a known mapping, then few spare pages."""
        size = self._used(bank)
        return min(size, wanted), bank.number == last, -size, -bank.number


def _empty(bank: _Bank, work: Callable[[], None]) -> None:
    try:
        work()
    finally:
        bank.busy = False


class BankedDevice(ABC):
    """The part of `carpool.devices.base.DeviceBackend` about banks and stores that all kinds of devices share."""

    uuid = ""
    model = ""
    checkpoint = False
    context = spare = 0

    def __init__(self, device: DeviceId, capacity: int, window: int, banks: Banks, stores: Stores) -> None:
        """Raise DeviceError for an impossible capacity."""
        if capacity <= 0:
            raise DeviceError(f"device {device} needs a capacity, got {capacity} bytes")
        self.id = device
        self.capacity = capacity
        self.window = window
        self._banks = banks
        self._stores = stores

    def take_bank(self, owner: int, wanted: int, last: BankId | None) -> BankId:
        """See `DeviceBackend`."""
        return self._banks.take(owner, wanted, last)

    def free_bank(self, bank: BankId) -> None:
        """See `DeviceBackend`."""
        self._banks.free(bank)

    def bank_files(self, bank: BankId) -> tuple[Extent, ...]:
        """See `DeviceBackend`."""
        return tuple(self._banks.files(bank))

    def bank_owner(self, bank: BankId) -> int:
        """See `DeviceBackend`."""
        return self._banks.owner(bank)

    def close_banks(self, owner: int) -> None:
        """See `DeviceBackend`."""
        self._banks.close(owner)

    def adopt_bank(self, bank: BankId, owner: int, files: Sequence[Extent]) -> None:
        """See `DeviceBackend`."""
        self._banks.adopt(bank, owner, files)

    def check_bank(self, bank: BankId, owner: int, files: Sequence[Extent]) -> None:
        """See `DeviceBackend`."""
        self._banks.check(bank, owner, files)

    def hold_bank(self, bank: BankId) -> None:
        """See `DeviceBackend`."""
        self._banks.hold(bank)

    @abstractmethod
    def used_bytes(self) -> int:
        """Return the bytes of memory that exist behind lanes and banks."""

    def left_bytes(self, granted: Mapping[BankId, int]) -> int:
        """See `DeviceBackend`."""
        return self._banks.left(granted)

    def surplus(self, usable: int) -> Callable[[], None] | None:
        """See `DeviceBackend`."""
        excess = self.used_bytes() - usable
        return self._banks.emptying(excess) if excess > 0 else None

    def store_fd(self, job: JobId) -> int:
        """See `DeviceBackend`."""
        return self._stores.fd(job)

    def drop_store(self, job: JobId) -> None:
        """See `DeviceBackend`."""
        self._stores.drop(job)

    def adopt_store(self, job: JobId, fd: int) -> None:
        """See `DeviceBackend`."""
        self._stores.adopt(job, fd)

    def check_store(self, fd: int) -> None:
        """See `DeviceBackend`."""
        self._stores.check(fd)

    def stored_bytes(self) -> int:
        """See `DeviceBackend`."""
        return self._stores.pages()
