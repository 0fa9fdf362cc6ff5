"""What every device has to do, whatever it is made of (`carpool.devices.base.Device`).

A new kind passes this suite before it gets tests of its own: subclass `DeviceContract` and give it `make`, a device of
`CAPACITY` bytes, and `use`, which fills the first bytes of a lane or bank, as a job would, and returns what was there.
"""

from __future__ import annotations

import os

import pytest

from carpool.core.model import GIB
from carpool.devices.base import DeviceBackend, DeviceError, Extent
from tests.descriptors import descriptors
from tests.devices.bank_contract import BankContract
from tests.devices.contract_base import ANOTHER, CAPACITY, OWNER, PATTERN, UNIT, Contract, duplicates, use_store


class MemoryContract(Contract):
    """The part that is about lanes and stores, and about who comes after a daemon."""

    def test_it_says_what_it_is_and_uses_nothing_at_first(self, device: DeviceBackend) -> None:
        assert device.id and device.kind
        assert device.capacity == CAPACITY
        assert device.window >= device.capacity and device.window % GIB == 0
        assert device.used_bytes() == 0

    def test_memory_counts_when_it_is_used(self, device: DeviceBackend) -> None:
        device.open_lane(1, 4 * UNIT)
        assert device.used_bytes() <= 4 * UNIT
        self.use_lane(device, 1, 4 * UNIT)
        assert (device.used_bytes(), device.stored_bytes()) == (4 * UNIT, 0)
        self.use_bank(device, device.take_bank(OWNER, 0, None), UNIT)
        assert (device.used_bytes(), device.stored_bytes()) == (5 * UNIT, 0)
        use_store(device.store_fd(7), UNIT)
        assert (device.used_bytes(), device.stored_bytes()) == (5 * UNIT, UNIT)

    def test_what_earlier_jobs_have_left_in_banks_is_known(self, device: DeviceBackend) -> None:
        bank = device.take_bank(OWNER, 0, None)
        self.use_bank(device, bank, 2 * UNIT)
        assert device.left_bytes({bank: 2 * UNIT}) == 0 and device.left_bytes({bank: UNIT}) == UNIT
        device.free_bank(bank)
        assert device.left_bytes({}) == device.used_bytes() == 2 * UNIT

    def test_fresh_memory_is_zero(self, device: DeviceBackend) -> None:
        device.open_lane(1, UNIT)
        assert not any(self.use_lane(device, 1, UNIT))
        assert not any(self.use_bank(device, device.take_bank(OWNER, 0, None), UNIT))
        assert not any(use_store(device.store_fd(1), UNIT))

    def test_memory_of_another_job_is_zero(self, device: DeviceBackend) -> None:
        device.open_lane(1, CAPACITY)
        self.use_lane(device, 1, CAPACITY)
        device.close_lane(1)
        device.open_lane(2, CAPACITY)
        assert not any(self.use_lane(device, 2, CAPACITY))

    # Lanes

    def test_a_lane_grows_and_keeps_its_content(self, device: DeviceBackend) -> None:
        device.open_lane(1, UNIT)
        self.use_lane(device, 1, UNIT)
        before = device.lane_files(1)
        device.resize_lane(1, 3 * UNIT)
        assert device.lane_size(1) == 3 * UNIT
        assert [file.fd for file in device.lane_files(1)][: len(before)] == [file.fd for file in before]
        content = self.use_lane(device, 1, 3 * UNIT)
        assert content == PATTERN * UNIT + bytes(2 * UNIT)

    def test_a_lane_gives_back_what_it_was_given_by_a_growth(self, device: DeviceBackend) -> None:
        device.open_lane(1, UNIT)
        device.resize_lane(1, 4 * UNIT)
        self.use_lane(device, 1, 4 * UNIT)
        device.resize_lane(1, UNIT)
        assert (device.lane_size(1), device.used_bytes()) == (UNIT, UNIT)
        device.resize_lane(1, 2 * UNIT)
        assert self.use_lane(device, 1, 2 * UNIT) == PATTERN * UNIT + bytes(UNIT), "zero beyond what it has kept"
        device.resize_lane(1, 0)
        assert (device.lane_size(1), device.used_bytes()) == (0, 0)

    def test_sizes_are_rounded_up(self, device: DeviceBackend) -> None:
        device.open_lane(1, 1)
        assert 1 <= device.lane_size(1) <= UNIT
        device.open_lane(2, 0)
        assert device.lane_size(2) == 0
        assert sum(file.size for file in device.lane_files(1)) == device.lane_size(1)

    def test_a_lane_that_cannot_be_had_changes_nothing(self, device: DeviceBackend) -> None:
        device.open_lane(1, UNIT)
        before = device.lane_files(1)
        with pytest.raises(DeviceError):
            device.resize_lane(1, 1 << 63)
        assert device.lane_files(1) == before and device.used_bytes() <= UNIT
        with pytest.raises(DeviceError):
            device.open_lane(2, 1 << 63)
        device.open_lane(2, UNIT)

    def test_lanes_are_apart(self, device: DeviceBackend) -> None:
        device.open_lane(1, UNIT)
        device.open_lane(2, UNIT)
        self.use_lane(device, 1, UNIT)
        assert not any(self.use_lane(device, 2, UNIT))

    def test_a_lane_is_opened_once_and_is_free_and_unknown_when_it_is_closed(self, device: DeviceBackend) -> None:
        device.open_lane(1, UNIT)
        with pytest.raises(DeviceError, match="already"):
            device.open_lane(1, UNIT)
        self.use_lane(device, 1, UNIT)
        device.close_lane(1)
        assert device.used_bytes() == 0
        for call in (device.lane_files, device.lane_size, device.close_lane):
            with pytest.raises(DeviceError):
                call(1)

    # Stores

    def test_a_store_is_the_jobs_own(self, device: DeviceBackend) -> None:
        fd = device.store_fd(1)
        assert device.store_fd(1) == fd
        use_store(fd, UNIT)
        assert not any(use_store(device.store_fd(2), UNIT))
        device.drop_store(1)
        device.drop_store(1)
        assert device.stored_bytes() == UNIT
        assert not any(use_store(device.store_fd(1), UNIT))

    def test_stores_cannot_be_resized_by_a_job(self, device: DeviceBackend) -> None:
        fd = device.store_fd(1)
        for size in (0, 2 * os.fstat(fd).st_size):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)

    def test_what_is_no_store_is_not_taken_for_one(self, device: DeviceBackend) -> None:
        device.check_store(device.store_fd(1))
        other = os.memfd_create("other")
        with pytest.raises(DeviceError, match="not a store"):
            device.check_store(other)
        os.close(other)

    # Another daemon

    def test_another_daemon_takes_over(self, device: DeviceBackend, successor: DeviceBackend) -> None:
        device.open_lane(3, 2 * UNIT)
        self.use_lane(device, 3, UNIT)
        bank = self.filled(device, UNIT)
        use_store(device.store_fd(4), UNIT)
        used = device.used_bytes()
        for _ in range(2):  # several jobs bring the same lane, and the same bank
            successor.check_bank(bank, OWNER, device.bank_files(bank))
            successor.adopt_lane(3, duplicates(device.lane_files(3)))
            successor.adopt_bank(bank, OWNER, duplicates(device.bank_files(bank)))
        successor.adopt_store(4, os.dup(device.store_fd(4)))
        device.close()
        assert (successor.lane_size(3), successor.used_bytes(), successor.stored_bytes()) == (2 * UNIT, used, UNIT)
        assert self.use_lane(successor, 3, UNIT) == PATTERN * UNIT
        assert self.use_bank(successor, bank, UNIT) == PATTERN * UNIT
        assert use_store(successor.store_fd(4), UNIT) == PATTERN * UNIT

    def test_what_is_no_bank_is_not_taken_for_one(self, device: DeviceBackend, successor: DeviceBackend) -> None:
        bank = self.filled(device, UNIT)
        files = device.bank_files(bank)
        other = os.memfd_create("other")
        os.ftruncate(other, UNIT)
        for number, strangers in ((0, files), (bank, [Extent(other, UNIT)])):
            with pytest.raises(DeviceError, match="is not bank"):
                successor.check_bank(number, OWNER, strangers)
        os.close(other)
        successor.adopt_bank(bank, OWNER, duplicates(files))
        with pytest.raises(DeviceError, match="is not bank"):
            successor.check_bank(bank, ANOTHER, files)

    def test_adopted_banks_are_free_until_somebody_is_found_in_them(
        self, device: DeviceBackend, successor: DeviceBackend
    ) -> None:
        free, held = self.filled(device, UNIT), self.filled(device, UNIT)
        for bank in (free, held):
            successor.adopt_bank(bank, OWNER, duplicates(device.bank_files(bank)))
        successor.hold_bank(held)
        taken = [successor.take_bank(OWNER, UNIT, held) for _ in range(2)]
        assert taken[0] == free and taken[1] not in (free, held)
        with pytest.raises(DeviceError):
            successor.hold_bank(99)

    def test_nothing_is_left_open(self) -> None:
        before = descriptors()
        device = self.make()
        for lane in range(1, 4):
            device.open_lane(lane, UNIT)
            device.grow_bank(device.take_bank(OWNER, 0, None), UNIT)
            device.store_fd(lane)
        device.close_lane(2)
        device.drop_store(2)
        device.close()
        assert descriptors() == before
        assert device.used_bytes() == 0


class DeviceContract(MemoryContract, BankContract):
    """All of it."""
