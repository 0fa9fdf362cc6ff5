"""The banks of a host device: which there are, whose they are, who holds one, which one to give."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from carpool.devices import memfd
from carpool.devices.base import BankId, DeviceError


@dataclass(slots=True)
class _Bank:
    """``busy``: held by a job, or being emptied."""

    number: BankId
    owner: int
    fd: int
    busy: bool


class Banks:
    """Sparse files of ``size`` bytes.  Numbers only increase, so that an old one never means another bank."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._next: BankId = 1
        self._of: dict[BankId, _Bank] = {}

    def take(self, owner: int, wanted: int, last: BankId | None) -> BankId:
        free = [bank for bank in self._of.values() if bank.owner == owner and not bank.busy]
        if not wanted:
            free = [bank for bank in free if not memfd.pages(bank.fd)]
        bank = max(free, key=lambda bank: _usefulness(bank, wanted, last), default=None) or self._create(owner)
        bank.busy = True
        return bank.number

    def free(self, bank: BankId) -> None:
        if bank in self._of:
            self._of[bank].busy = False

    def hold(self, bank: BankId) -> None:
        self._known(bank).busy = True

    def fd(self, bank: BankId) -> int:
        return self._known(bank).fd

    def close(self, owner: int | None = None) -> None:
        """Those of an owner; without one: all."""
        for bank in tuple(self._of.values()):
            if owner is None or bank.owner == owner:
                del self._of[bank.number]
                os.close(bank.fd)

    def check(self, bank: BankId, owner: int, fd: int) -> None:
        """Raises DeviceError if it cannot be adopted: it could be anything."""
        known = self._of.get(bank)
        if bank <= 0 or not memfd.is_sealed(fd, self._size):
            raise DeviceError(f"what was kept is no bank {self._name}{bank}: wrong number, size or seals")
        if known is not None and (known.owner != owner or os.fstat(known.fd).st_ino != os.fstat(fd).st_ino):
            raise DeviceError(f"what was kept is not the bank {self._name}{bank}")

    def adopt(self, bank: BankId, owner: int, fd: int) -> None:
        if bank in self._of:
            os.close(fd)
            return
        self._of[bank] = _Bank(bank, owner, fd, busy=False)
        self._next = max(self._next, bank + 1)

    def pages(self) -> int:
        return sum(memfd.pages(bank.fd) for bank in self._of.values())

    def emptying(self, size: int) -> Callable[[], None] | None:
        """A call that gives up to ``size`` bytes of one free bank back; None: there is nothing to give."""
        free = [bank for bank in self._of.values() if not bank.busy and memfd.pages(bank.fd)]
        bank = min(free, key=lambda bank: (memfd.pages(bank.fd), bank.number), default=None)
        if bank is None:
            return None
        fd = os.dup(bank.fd)  # the bank may be closed meanwhile
        bank.busy = True
        return lambda: _empty(bank, fd, size)

    def _create(self, owner: int) -> _Bank:
        fd = memfd.create(f"{self._name}{self._next}", self._size, sealed=True)
        bank = self._of[self._next] = _Bank(self._next, owner, fd, busy=False)
        self._next += 1
        return bank

    def _known(self, bank: BankId) -> _Bank:
        try:
            return self._of[bank]
        except KeyError:
            raise DeviceError(f"there is no bank {self._name}{bank}") from None


def _usefulness(bank: _Bank, wanted: int, last: BankId | None) -> tuple[int, bool, int, int]:
    """Pages that need not be made anew first, then no new mapping, then no waste of pages that others could use."""
    size = memfd.pages(bank.fd)
    return min(size, wanted), bank.number == last, -size, -bank.number


def _empty(bank: _Bank, fd: int, size: int) -> None:
    try:
        memfd.punch(fd, size)
    finally:
        os.close(fd)
        bank.busy = False
