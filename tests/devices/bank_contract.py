"""The part of the device contract that is about banks."""

from __future__ import annotations

import pytest

from carpool.devices.base import BankId, DeviceBackend, DeviceError
from tests.devices.contract_base import ANOTHER, CAPACITY, OWNER, PATTERN, UNIT, Contract


class BankContract(Contract):
    def test_a_bank_is_held_by_one_job_at_a_time(self, device: DeviceBackend) -> None:
        banks = [self.filled(device, UNIT) for _ in range(3)]
        assert len({0, *banks}) == 4
        assert device.take_bank(OWNER, UNIT, banks[0]) not in banks

    def test_a_bank_grows_and_keeps_its_content(self, device: DeviceBackend) -> None:
        bank = self.filled(device, UNIT)
        before = device.bank_files(bank)
        assert self.use_bank(device, bank, 3 * UNIT) == PATTERN * UNIT + bytes(2 * UNIT)
        assert device.bank_files(bank)[: len(before)] == before
        device.grow_bank(bank, UNIT)  # it is large enough
        assert device.used_bytes() == 3 * UNIT
        with pytest.raises(DeviceError, match="no bank"):
            device.grow_bank(99, UNIT)

    def test_a_bank_that_is_cut_keeps_what_is_needed(self, device: DeviceBackend) -> None:
        bank = self.filled(device, UNIT, 2 * UNIT)
        before = device.bank_files(bank)
        device.cut_bank(bank, UNIT)
        after = device.bank_files(bank)
        assert after == before[: len(after)]
        assert self.use_bank(device, bank, UNIT) == PATTERN * UNIT
        with pytest.raises(DeviceError, match="no bank"):
            device.cut_bank(99, UNIT)

    def test_the_next_job_finds_the_pages_of_the_one_before(self, device: DeviceBackend) -> None:
        bank = self.filled(device, UNIT)
        device.free_bank(bank)
        device.free_bank(bank)
        assert device.used_bytes() == UNIT
        assert device.take_bank(OWNER, UNIT, None) == bank
        assert self.use_bank(device, bank, UNIT) == PATTERN * UNIT

    def test_owners_never_share_a_bank(self, device: DeviceBackend) -> None:
        bank = self.filled(device, UNIT)
        device.free_bank(bank)
        other = device.take_bank(ANOTHER, UNIT, bank)
        assert other != bank and not any(self.use_bank(device, other, UNIT))
        assert (device.bank_owner(bank), device.bank_owner(other)) == (OWNER, ANOTHER)

    def test_which_bank_a_job_gets(self, device: DeviceBackend) -> None:
        small, middle, large = (self.filled(device, size * UNIT) for size in (1, 4, 8))
        for bank in (small, middle, large):
            device.free_bank(bank)

        def given(wanted: int, last: BankId | None) -> BankId:
            bank = device.take_bank(OWNER, wanted * UNIT, last)
            device.free_bank(bank)
            return bank

        assert given(4, large) == large  # nothing to map anew
        assert given(4, small) == middle  # its own pages are not there any more
        assert given(2, None) == middle  # no more than it needs
        assert given(30, middle) == large  # the most that there is
        assert given(0, None) not in (small, middle, large)  # who brings nothing needs none of them

    def test_an_empty_bank_is_used_again(self, device: DeviceBackend) -> None:
        bank = device.take_bank(OWNER, 0, None)
        device.free_bank(bank)
        assert device.take_bank(OWNER, 0, None) == bank

    def test_banks_are_closed_when_nobody_of_the_owner_is_left(self, device: DeviceBackend) -> None:
        held, free = self.filled(device, UNIT), self.filled(device, UNIT)
        others = self.filled(device, UNIT, owner=ANOTHER)
        device.free_bank(free)
        device.close_banks(OWNER)
        device.free_bank(held)  # too late to matter
        assert device.used_bytes() == UNIT and device.bank_files(others)
        for bank in (held, free):
            with pytest.raises(DeviceError):
                device.bank_files(bank)
        assert device.take_bank(OWNER, 0, None) not in (held, free)

    def test_nothing_is_emptied_while_everything_fits(self, device: DeviceBackend) -> None:
        device.open_lane(1, CAPACITY // 2)
        self.use_lane(device, 1, CAPACITY // 2)
        device.free_bank(self.filled(device, CAPACITY // 2))
        assert device.surplus(device.capacity) is None

    def test_a_free_bank_is_emptied_as_far_as_necessary(self, device: DeviceBackend) -> None:
        quarter = CAPACITY // 4
        held, small = self.filled(device, 2 * quarter), self.filled(device, quarter)
        large = self.filled(device, *(quarter * part for part in (1, 2, 3)))
        for bank in (small, large):
            device.free_bank(bank)
        for expected in (5, 4):  # quarters of the capacity that are left: first the small one goes
            work = device.surplus(device.capacity)
            assert work is not None
            work()
            assert device.used_bytes() == expected * quarter
        assert device.surplus(device.capacity) is None
        device.free_bank(held)
        assert device.take_bank(OWNER, CAPACITY, None) in (held, large)

    def test_what_is_held_is_not_emptied(self, device: DeviceBackend) -> None:
        for _ in range(2):
            self.filled(device, CAPACITY)
        assert device.surplus(device.capacity) is None

    def test_nobody_gets_a_bank_that_is_being_emptied(self, device: DeviceBackend) -> None:
        self.filled(device, CAPACITY)
        bank = self.filled(device, UNIT)
        device.free_bank(bank)
        work = device.surplus(device.capacity)
        assert work is not None
        assert device.surplus(device.capacity) is None
        assert device.used_bytes() == CAPACITY + UNIT
        assert device.take_bank(OWNER, UNIT, bank) != bank
        work()
        assert device.take_bank(OWNER, UNIT, bank) == bank
        assert not any(self.use_bank(device, bank, UNIT))

    def test_a_bank_may_be_closed_while_it_is_emptied(self, device: DeviceBackend) -> None:
        self.filled(device, CAPACITY)
        device.free_bank(self.filled(device, UNIT))
        work = device.surplus(device.capacity)
        device.close_banks(OWNER)
        assert work is not None
        work()
        assert device.used_bytes() == 0
