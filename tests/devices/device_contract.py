"""What every device has to do, whatever it is made of (`carpool.devices.base.Device`).

A new kind passes this suite before it gets tests of its own: subclass `DeviceContract` and give it a `device` fixture
of `CAPACITY` bytes, and `use`, which makes the first bytes behind a descriptor really exist and returns what was
there before.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from carpool.core.model import GIB, MIB
from carpool.devices.base import BankId, Device, DeviceError

CAPACITY = 64 * MIB
OWNER, ANOTHER = 1000, 1001


class DeviceContract:
    def use(self, device: Device, fd: int, size: int) -> bytes:
        raise NotImplementedError

    def test_it_says_what_it_is(self, device: Device) -> None:
        assert device.id and device.kind
        assert device.capacity == CAPACITY
        assert device.window >= device.capacity and device.window % GIB == 0

    def test_a_new_device_uses_nothing(self, device: Device) -> None:
        assert device.used_bytes() == 0

    def test_memory_counts_when_it_is_used(self, device: Device) -> None:
        device.open_lane(1, 8 * MIB)
        bank, store = device.bank_fd(device.take_bank(OWNER, 0, None)), device.store_fd(7)
        assert device.used_bytes() == 0
        self.use(device, device.lane_fd(1), 4 * MIB)
        self.use(device, bank, 2 * MIB)
        assert (device.used_bytes(), device.stored_bytes()) == (6 * MIB, 0)
        self.use(device, store, MIB)
        assert (device.used_bytes(), device.stored_bytes()) == (6 * MIB, MIB)

    def test_fresh_memory_is_zero(self, device: Device) -> None:
        device.open_lane(1, MIB)
        assert not any(self.use(device, device.lane_fd(1), MIB))
        assert not any(self.use(device, device.bank_fd(device.take_bank(OWNER, 0, None)), MIB))
        assert not any(self.use(device, device.store_fd(1), MIB))

    def test_a_lane_grows_and_keeps_its_content(self, device: Device) -> None:
        device.open_lane(1, MIB)
        self.use(device, device.lane_fd(1), MIB)
        device.resize_lane(1, 2 * MIB)
        assert device.lane_size(1) == 2 * MIB
        content = self.use(device, device.lane_fd(1), 2 * MIB)
        assert any(content[:MIB]) and not any(content[MIB:])

    def test_a_lane_shrinks_and_gives_its_memory_back(self, device: Device) -> None:
        device.open_lane(1, 4 * MIB)
        self.use(device, device.lane_fd(1), 4 * MIB)
        device.resize_lane(1, MIB)
        assert (device.lane_size(1), device.used_bytes()) == (MIB, MIB)
        device.resize_lane(1, 0)
        assert (device.lane_size(1), device.used_bytes()) == (0, 0)

    def test_sizes_are_rounded_up(self, device: Device) -> None:
        device.open_lane(1, 1)
        assert 1 <= device.lane_size(1) <= 2 * MIB
        device.open_lane(2, 0)
        assert device.lane_size(2) == 0

    def test_lanes_are_apart(self, device: Device) -> None:
        device.open_lane(1, MIB)
        device.open_lane(2, MIB)
        self.use(device, device.lane_fd(1), MIB)
        assert not any(self.use(device, device.lane_fd(2), MIB))

    def test_a_closed_lane_is_free_and_unknown(self, device: Device) -> None:
        device.open_lane(1, MIB)
        self.use(device, device.lane_fd(1), MIB)
        device.close_lane(1)
        assert device.used_bytes() == 0
        for call in (device.lane_fd, device.lane_size, device.close_lane):
            with pytest.raises(DeviceError):
                call(1)

    def test_a_lane_is_opened_once(self, device: Device) -> None:
        device.open_lane(1, MIB)
        with pytest.raises(DeviceError, match="already"):
            device.open_lane(1, MIB)

    def test_a_store_is_the_jobs_own(self, device: Device) -> None:
        fd = device.store_fd(1)
        assert device.store_fd(1) == fd
        self.use(device, fd, MIB)
        assert not any(self.use(device, device.store_fd(2), MIB))
        device.drop_store(1)
        device.drop_store(1)
        assert device.stored_bytes() == MIB
        assert not any(self.use(device, device.store_fd(1), MIB))

    # Banks

    def filled(self, device: Device, size: int, owner: int = OWNER) -> BankId:
        """A bank that a job holds and has used."""
        bank = device.take_bank(owner, 0, None)
        self.use(device, device.bank_fd(bank), size)
        return bank

    def test_a_bank_is_held_by_one_job_at_a_time(self, device: Device) -> None:
        banks = [self.filled(device, MIB) for _ in range(3)]
        assert len({0, *banks}) == 4
        assert device.take_bank(OWNER, MIB, banks[0]) not in banks

    def test_the_next_job_finds_the_pages_of_the_one_before(self, device: Device) -> None:
        bank = self.filled(device, 2 * MIB)
        device.free_bank(bank)
        device.free_bank(bank)
        assert device.used_bytes() == 2 * MIB
        assert device.take_bank(OWNER, MIB, None) == bank
        assert any(self.use(device, device.bank_fd(bank), 2 * MIB))

    def test_owners_never_share_a_bank(self, device: Device) -> None:
        bank = self.filled(device, MIB)
        device.free_bank(bank)
        other = device.take_bank(ANOTHER, MIB, bank)
        assert other != bank and not any(self.use(device, device.bank_fd(other), MIB))

    def test_which_bank_a_job_gets(self, device: Device) -> None:
        small, middle, large = (self.filled(device, size * MIB) for size in (1, 4, 8))
        for bank in (small, middle, large):
            device.free_bank(bank)

        def given(wanted: int, last: BankId | None) -> BankId:
            bank = device.take_bank(OWNER, wanted * MIB, last)
            device.free_bank(bank)
            return bank

        assert given(4, large) == large  # nothing to map anew
        assert given(4, small) == middle  # its own pages are not there any more
        assert given(2, None) == middle  # no more than it needs
        assert given(60, middle) == large  # the most that there is
        assert given(0, None) not in (small, middle, large)  # who brings nothing needs none of them

    def test_an_empty_bank_is_used_again(self, device: Device) -> None:
        bank = device.take_bank(OWNER, 0, None)
        device.free_bank(bank)
        assert device.take_bank(OWNER, 0, None) == bank

    def test_banks_are_closed_when_nobody_of_the_owner_is_left(self, device: Device) -> None:
        held, free, others = self.filled(device, MIB), self.filled(device, MIB), self.filled(device, MIB, ANOTHER)
        device.free_bank(free)
        device.close_banks(OWNER)
        device.free_bank(held)  # too late to matter
        assert device.used_bytes() == MIB and device.bank_fd(others)
        for bank in (held, free):
            with pytest.raises(DeviceError):
                device.bank_fd(bank)
        assert device.take_bank(OWNER, 0, None) not in (held, free)

    def test_nothing_is_emptied_while_everything_fits(self, device: Device) -> None:
        device.open_lane(1, CAPACITY // 2)
        self.use(device, device.lane_fd(1), CAPACITY // 2)
        device.free_bank(self.filled(device, CAPACITY // 2))
        assert device.surplus() is None

    def test_a_free_bank_is_emptied_as_far_as_necessary(self, device: Device) -> None:
        held, small, large = (self.filled(device, CAPACITY * part // 4) for part in (2, 1, 3))
        for bank in (small, large):
            device.free_bank(bank)
        for expected in (5, 4):  # quarters of the capacity that are left: first the small one goes
            work = device.surplus()
            assert work is not None
            work()
            assert device.used_bytes() == CAPACITY * expected // 4
        assert device.surplus() is None
        device.free_bank(held)
        assert device.take_bank(OWNER, CAPACITY, None) in (held, large)

    def test_what_is_held_is_not_emptied(self, device: Device) -> None:
        for _ in range(2):
            self.filled(device, CAPACITY)
        assert device.surplus() is None

    def test_nobody_gets_a_bank_that_is_being_emptied(self, device: Device) -> None:
        self.filled(device, CAPACITY)
        bank = self.filled(device, MIB)
        device.free_bank(bank)
        work = device.surplus()
        assert work is not None
        assert device.surplus() is None
        assert device.take_bank(OWNER, MIB, bank) != bank
        work()
        assert device.take_bank(OWNER, MIB, bank) == bank
        assert not any(self.use(device, device.bank_fd(bank), MIB))

    def test_a_bank_may_be_closed_while_it_is_emptied(self, device: Device) -> None:
        self.filled(device, CAPACITY)
        device.free_bank(self.filled(device, MIB))
        work = device.surplus()
        device.close_banks(OWNER)
        assert work is not None
        work()
        assert device.used_bytes() == 0

    # Another daemon

    def test_another_daemon_takes_over(self, device: Device, successor: Device) -> None:
        device.open_lane(3, 2 * MIB)
        self.use(device, device.lane_fd(3), MIB)
        bank = self.filled(device, MIB)
        self.use(device, device.store_fd(4), MIB)
        for _ in range(2):  # several jobs bring the same lane, and the same bank
            successor.adopt_lane(3, os.dup(device.lane_fd(3)))
            successor.adopt_bank(bank, OWNER, os.dup(device.bank_fd(bank)))
        successor.adopt_store(4, os.dup(device.store_fd(4)))
        device.close()
        assert (successor.lane_size(3), successor.used_bytes(), successor.stored_bytes()) == (2 * MIB, 2 * MIB, MIB)
        for fd in (successor.lane_fd(3), successor.bank_fd(bank), successor.store_fd(4)):
            assert any(self.use(successor, fd, MIB))

    def test_adopted_banks_are_free_until_somebody_is_found_in_them(self, device: Device, successor: Device) -> None:
        free, held = self.filled(device, MIB), self.filled(device, MIB)
        for bank in (free, held):
            successor.adopt_bank(bank, OWNER, os.dup(device.bank_fd(bank)))
        successor.hold_bank(held)
        taken = [successor.take_bank(OWNER, MIB, held) for _ in range(2)]
        assert taken[0] == free and taken[1] not in (free, held)
        with pytest.raises(DeviceError):
            successor.hold_bank(99)

    def test_nothing_is_left_open(self, device: Device) -> None:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for lane in range(1, 4):
            device.open_lane(lane, MIB)
            device.take_bank(OWNER, 0, None)
            device.store_fd(lane)
        device.close_lane(2)
        device.drop_store(2)
        device.close()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        assert device.used_bytes() == 0
