"""What is the same on every kind of device: banks and stores, of whatever they are made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from carpool.core.model import DeviceId, JobId
from carpool.devices.banks import Banks
from carpool.devices.base import BankId, DeviceError, Extent
from carpool.devices.host_stores import Stores


class BankedDevice(ABC):
    """The part of `carpool.devices.base.DeviceBackend` that is about banks and stores, where kinds do not differ."""

    uuid = ""
    model = ""
    checkpoint = False

    def __init__(self, device: DeviceId, capacity: int, window: int, banks: Banks, stores: Stores) -> None:
        """Raises DeviceError for an impossible capacity."""
        if capacity <= 0:
            raise DeviceError(f"device {device} needs a capacity, got {capacity} bytes")
        self.id = device
        self.capacity = capacity
        self.window = window
        self._banks = banks
        self._stores = stores

    def take_bank(self, owner: int, wanted: int, last: BankId | None) -> BankId:
        return self._banks.take(owner, wanted, last)

    def free_bank(self, bank: BankId) -> None:
        self._banks.free(bank)

    def bank_files(self, bank: BankId) -> tuple[Extent, ...]:
        return tuple(self._banks.files(bank))

    def close_banks(self, owner: int) -> None:
        self._banks.close(owner)

    def adopt_bank(self, bank: BankId, owner: int, files: Sequence[Extent]) -> None:
        self._banks.adopt(bank, owner, files)

    def check_bank(self, bank: BankId, owner: int, files: Sequence[Extent]) -> None:
        self._banks.check(bank, owner, files)

    def hold_bank(self, bank: BankId) -> None:
        self._banks.hold(bank)

    @abstractmethod
    def used_bytes(self) -> int: ...

    def surplus(self) -> Callable[[], None] | None:
        excess = self.used_bytes() - self.capacity
        return self._banks.emptying(excess) if excess > 0 else None

    def store_fd(self, job: JobId) -> int:
        return self._stores.fd(job)

    def drop_store(self, job: JobId) -> None:
        self._stores.drop(job)

    def adopt_store(self, job: JobId, fd: int) -> None:
        self._stores.adopt(job, fd)

    def check_store(self, fd: int) -> None:
        self._stores.check(fd)

    def stored_bytes(self) -> int:
        return self._stores.pages()
