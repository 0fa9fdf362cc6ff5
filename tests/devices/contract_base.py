"""What the parts of the device contract share: how a kind of device is made, and how tests use memory as jobs do."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence

import pytest

from carpool.core.model import MIB
from carpool.devices.base import BankId, DeviceBackend, Extent

#: What every device can make and give back exactly.
UNIT = 2 * MIB
CAPACITY = 32 * UNIT
OWNER, ANOTHER = 1000, 1001
PATTERN = b"\x5a"


def duplicates(files: Sequence[Extent]) -> list[Extent]:
    """As a shim keeps them."""
    return [Extent(os.dup(file.fd), file.size) for file in files]


def use_store(fd: int, size: int) -> bytes:
    """Fill the first bytes of a store; returns what was there."""
    with mmap.mmap(fd, size) as memory:
        before = memory[:]
        memory[:] = PATTERN * size
    return before


class Contract:
    def make(self) -> DeviceBackend:
        """Devices of one kind, all of the same memory; the caller closes them."""
        raise NotImplementedError

    def use(self, files: Sequence[Extent], size: int) -> bytes:
        raise NotImplementedError

    @pytest.fixture
    def device(self) -> Iterator[DeviceBackend]:
        made = self.make()
        yield made
        made.close()

    @pytest.fixture
    def successor(self) -> Iterator[DeviceBackend]:
        made = self.make()
        yield made
        made.close()

    def use_lane(self, device: DeviceBackend, lane: int, size: int) -> bytes:
        return self.use(device.lane_files(lane), size)

    def use_bank(self, device: DeviceBackend, bank: BankId, size: int) -> bytes:
        device.grow_bank(bank, size)
        return self.use(device.bank_files(bank), size)

    def filled(self, device: DeviceBackend, *sizes: int, owner: int = OWNER) -> BankId:
        """A bank that a job holds and has used, after it has grown to one size after the other."""
        bank = device.take_bank(owner, 0, None)
        for size in sizes:
            self.use_bank(device, bank, size)
        return bank
