"""The host device: real memory of the machine, as memfds of a fixed total capacity.

A lane's file is as large as the lane, so touching bytes beyond it raises SIGBUS in the job: the kernel enforces the
lane's size.  A bank is a sparse file of `BANK_WINDOWS` windows, which libcarpool maps at several offsets; only pages
that were touched exist, and those are what `used_bytes` counts.  A store is as large as a bank and has one byte more
for each chunk, which says where the chunk's content is.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from carpool.core.model import GIB, DeviceId, JobId, LaneId
from carpool.devices import memfd
from carpool.devices.banks import Banks
from carpool.devices.base import BankId, DeviceError
from carpool.protocol.seat import CHUNK

PAGE = memfd.PAGE
BANK_WINDOWS = 16


def round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


class HostDevice:
    """Implements `carpool.devices.base.Device`."""

    kind = "host"

    def __init__(self, device: DeviceId, capacity: int) -> None:
        if capacity <= 0:
            raise DeviceError(f"device {device} needs a capacity, got {capacity} bytes")
        self.id = device
        self.capacity = capacity
        self.window = round_up(capacity, GIB)
        self._bank_bytes = BANK_WINDOWS * self.window
        self._lanes: dict[LaneId, int] = {}
        self._banks = Banks(f"carpool-{device}-bank", self._bank_bytes)
        self._store_bytes = self._bank_bytes + self._bank_bytes // CHUNK
        self._stores: dict[JobId, int] = {}

    # Lanes

    def open_lane(self, lane: LaneId, size: int) -> None:
        if lane in self._lanes:
            raise DeviceError(f"lane {lane} of {self.id} is already open")
        self._lanes[lane] = memfd.create(f"carpool-{self.id}-lane{lane}", round_up(size, PAGE), sealed=False)

    def resize_lane(self, lane: LaneId, size: int) -> None:
        try:
            os.ftruncate(self.lane_fd(lane), round_up(size, PAGE))
        except (OSError, OverflowError) as error:
            raise DeviceError(f"lane {lane} of {self.id} cannot become {size} bytes: {error}") from None

    def close_lane(self, lane: LaneId) -> None:
        os.close(self.lane_fd(lane))
        del self._lanes[lane]

    def lane_fd(self, lane: LaneId) -> int:
        try:
            return self._lanes[lane]
        except KeyError:
            raise DeviceError(f"{self.id} has no lane {lane}") from None

    def lane_size(self, lane: LaneId) -> int:
        return os.fstat(self.lane_fd(lane)).st_size

    def adopt_lane(self, lane: LaneId, fd: int) -> None:
        if lane in self._lanes:
            os.close(fd)
        else:
            self._lanes[lane] = fd

    # Banks

    def take_bank(self, owner: int, wanted: int, last: BankId | None) -> BankId:
        return self._banks.take(owner, wanted, last)

    def free_bank(self, bank: BankId) -> None:
        self._banks.free(bank)

    def bank_fd(self, bank: BankId) -> int:
        return self._banks.fd(bank)

    def close_banks(self, owner: int) -> None:
        self._banks.close(owner)

    def adopt_bank(self, bank: BankId, owner: int, fd: int) -> None:
        self._banks.adopt(bank, owner, fd)

    def check_bank(self, bank: BankId, owner: int, fd: int) -> None:
        self._banks.check(bank, owner, fd)

    def hold_bank(self, bank: BankId) -> None:
        self._banks.hold(bank)

    def surplus(self) -> Callable[[], None] | None:
        excess = self.used_bytes() - self.capacity
        return self._banks.emptying(excess) if excess > 0 else None

    # Stores

    def store_fd(self, job: JobId) -> int:
        if job not in self._stores:
            self._stores[job] = memfd.create(f"carpool-{self.id}-store{job}", self._store_bytes, sealed=True)
        return self._stores[job]

    def drop_store(self, job: JobId) -> None:
        fd = self._stores.pop(job, None)
        if fd is not None:
            os.close(fd)

    def adopt_store(self, job: JobId, fd: int) -> None:
        self.drop_store(job)
        self._stores[job] = fd

    def check_store(self, fd: int) -> None:
        if not memfd.is_sealed(fd, self._store_bytes):
            raise DeviceError(f"what was kept is no store of {self.id}: wrong size or seals")

    def used_bytes(self) -> int:
        return sum(memfd.pages(fd) for fd in self._lanes.values()) + self._banks.pages()

    def stored_bytes(self) -> int:
        return sum(memfd.pages(fd) for fd in self._stores.values())

    def close(self) -> None:
        for fd in (*self._lanes.values(), *self._stores.values()):
            os.close(fd)
        self._lanes.clear()
        self._stores.clear()
        self._banks.close()
