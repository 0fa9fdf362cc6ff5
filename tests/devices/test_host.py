"""The host device: the contract, what only memfds can do, and whether pages of a file can be counted."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from carpool.core.model import GIB, MIB
from carpool.devices import memfd
from carpool.devices.base import DeviceError, Extent, Overuse, single
from carpool.devices.host import BANK_WINDOWS, HostDevice
from carpool.protocol.seat import CHUNK
from tests.devices.device_contract import CAPACITY, OWNER, UNIT, DeviceContract, duplicates, use_store


@pytest.fixture
def device() -> Iterator[HostDevice]:
    made = HostDevice("host0", CAPACITY)
    yield made
    made.close()


class TestHost(DeviceContract):
    def make(self) -> HostDevice:
        return HostDevice("host0", CAPACITY)

    def use(self, files: Sequence[Extent], size: int) -> bytes:
        return use_store(single(files), size)


def test_memory_does_not_exist_before_it_is_used(device: HostDevice) -> None:
    device.open_lane(1, CAPACITY)
    device.grow_bank(device.take_bank(OWNER, 0, None), CAPACITY)
    device.store_fd(7)
    assert (device.used_bytes(), device.stored_bytes()) == (0, 0)


@pytest.mark.parametrize("kind", ["bank", "store"])
def test_banks_and_stores_cannot_be_resized_by_a_job(device: HostDevice, kind: str) -> None:
    size = BANK_WINDOWS * GIB
    if kind == "bank":
        fd = single(device.bank_files(device.take_bank(1000, 0, None)))
    else:
        fd, size = device.store_fd(1), size + size // CHUNK
    assert os.fstat(fd).st_size == size
    for other in (0, size * 2):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, other)


def test_the_last_pages_go_first(device: HostDevice) -> None:
    """Smaller jobs lie at the beginning of a bank."""
    device.take_bank(1000, 0, None)
    bank = device.take_bank(1000, 0, None)
    device.open_lane(1, CAPACITY)
    fill(single(device.lane_files(1)), 0, CAPACITY)
    for offset in (0, GIB):
        fill(single(device.bank_files(bank)), offset, 2 * MIB)
    device.free_bank(bank)
    device.resize_lane(1, CAPACITY - MIB)
    work = device.surplus(device.capacity)
    assert work is not None
    work()
    assert memfd.extents(single(device.bank_files(bank))) == [(0, MIB)]


def fill(fd: int, offset: int, size: int) -> None:
    os.pwrite(fd, b"\x5a" * size, offset)


def test_impossible_capacities_and_sizes(device: HostDevice) -> None:
    with pytest.raises(DeviceError, match="capacity"):
        HostDevice("host1", 0)
    with pytest.raises(DeviceError, match="cannot create"):
        device.open_lane(1, 1 << 63)


# Banks for weights


def with_weights(device: HostDevice, size: int) -> tuple[int, int]:
    """A bank with weights of ``size`` bytes, and its descriptor."""
    bank = device.weights.take_for(1000, size)
    fd = single(device.weights.files(bank))
    fill(fd, 0, size)
    return bank, fd


def test_weights_take_over_the_pages_of_those_before(device: HostDevice) -> None:
    (small, _), (large, fd) = with_weights(device, MIB), with_weights(device, 3 * MIB)
    for bank in (small, large):
        device.weights.free(bank)
    assert device.used_bytes() == 4 * MIB
    assert device.weights.take_for(1001, 2 * MIB) not in (small, large)  # another owner's
    assert device.weights.take_for(1000, 2 * MIB) == large
    assert device.weights.take_for(1000, MIB) == small
    assert memfd.pages(fd) == 3 * MIB


def test_free_banks_of_weights_give_way(device: HostDevice) -> None:
    bank, fd = with_weights(device, CAPACITY)
    device.weights.free(bank)
    assert device.surplus(device.capacity) is None
    device.open_lane(1, MIB)
    fill(single(device.lane_files(1)), 0, MIB)
    work = device.surplus(device.capacity)
    assert work is not None
    assert device.weights.take_for(1000, MIB) != bank  # while it is emptied
    work()
    assert memfd.extents(fd) == [(0, CAPACITY - MIB)] and device.surplus(device.capacity) is None


def test_what_larger_weights_have_left_gives_way(device: HostDevice) -> None:
    large, fd = with_weights(device, CAPACITY)
    device.weights.free(large)
    assert device.weights.take_for(1000, MIB) == large
    _, other = with_weights(device, 2 * MIB)
    work = device.surplus(device.capacity)
    assert work is not None
    device.weights.free(large)
    assert device.weights.take_for(1000, CAPACITY) != large  # its end is about to go
    work()
    assert device.used_bytes() == CAPACITY and memfd.pages(other) == 2 * MIB
    assert memfd.extents(fd) == [(0, CAPACITY - 2 * MIB)]
    assert device.weights.take_for(1000, CAPACITY) == large


def test_weights_that_are_used_stay(device: HostDevice) -> None:
    with_weights(device, CAPACITY), with_weights(device, MIB)
    assert device.surplus(device.capacity) is None


# What is counted


def test_a_bank_may_have_what_its_holder_was_granted_and_what_was_left_there(device: HostDevice) -> None:
    bank = device.take_bank(OWNER, 0, None)
    fd = single(device.bank_files(bank))
    fill(fd, 0, 4 * MIB)
    assert device.overuse({bank: 4 * MIB}).banks == {}
    assert device.overuse({bank: 3 * MIB}).banks == {bank: MIB}
    device.free_bank(bank)
    assert device.overuse({}).banks == {}
    assert device.take_bank(OWNER, MIB, None) == bank
    assert device.overuse({bank: MIB}).banks == {}
    memfd.cut(fd, MIB, 4 * MIB)
    assert device.overuse({bank: MIB}).banks == {}
    fill(fd, MIB, 2 * MIB)
    assert device.overuse({bank: MIB}).banks == {bank: 2 * MIB}


def test_a_free_bank_in_which_somebody_goes_on_to_write_is_given_up(device: HostDevice) -> None:
    bank = device.take_bank(OWNER, 0, None)
    fd = os.dup(single(device.bank_files(bank)))
    device.free_bank(bank)
    fill(fd, 0, MIB)
    assert device.overuse({}).banks == {bank: MIB}
    device.abandon_bank(bank)
    assert (device.used_bytes(), device.overuse({}).banks) == (0, {})
    assert device.take_bank(OWNER, 0, bank) != bank
    os.close(fd)


def test_a_bank_that_is_adopted_may_have_what_it_has(device: HostDevice) -> None:
    bank, successor = device.take_bank(OWNER, 0, None), HostDevice("host0", CAPACITY)
    fill(single(device.bank_files(bank)), 0, MIB)
    successor.adopt_bank(bank, OWNER, [Extent(os.dup(single(device.bank_files(bank))), 0)])
    assert successor.overuse({}).banks == {}
    successor.close()


def test_weights_may_have_their_size_and_what_was_left_there(device: HostDevice) -> None:
    bank, fd = with_weights(device, 4 * MIB)
    assert device.overuse({}).weights == {}
    device.weights.free(bank)
    assert device.weights.take_for(1000, MIB) == bank
    assert device.overuse({}).weights == {}
    fill(fd, 4 * MIB, MIB)
    assert device.overuse({}).weights == {bank: MIB}


def test_a_packet_brings_one_file() -> None:
    assert single([Extent(5, 4096)]) == 5
    for files in ([], [Extent(5, 4096), Extent(6, 4096)]):
        with pytest.raises(DeviceError, match="pieces"):
            single(files)


NEVER = "always within_size advise [never] deny force\n"


@pytest.mark.parametrize(
    ("every", "two_mib", "small"),
    [
        (NEVER, "always [inherit] within_size advise never\n", True),
        (NEVER, "[always] inherit within_size advise never\n", False),
        ("always within_size [advise] never deny force\n", "always [inherit] within_size advise never\n", False),
        ("always within_size advise never [deny] force\n", "always inherit within_size advise [never]\n", True),
    ],
)
def test_whether_pages_are_small_is_what_the_kernel_says(tmp_path: Path, every: str, two_mib: str, small: bool) -> None:
    (tmp_path / "hugepages-2048kB").mkdir()
    (tmp_path / "shmem_enabled").write_text(every)
    (tmp_path / "hugepages-2048kB/shmem_enabled").write_text(two_mib)
    assert memfd.small_pages_only(tmp_path) is small


def test_a_kernel_without_huge_pages_has_small_ones(tmp_path: Path) -> None:
    assert memfd.small_pages_only(tmp_path)


# Lanes: files whose size nobody can change, and what is counted in them


def lane_fd(device: HostDevice, size: int = MIB) -> int:
    device.open_lane(1, size)
    return single(device.lane_files(1))


def test_nobody_can_change_the_size_of_a_lane(device: HostDevice) -> None:
    fd = lane_fd(device)
    for size in (0, MIB, CAPACITY - 1, 2 * CAPACITY):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)
    with pytest.raises(PermissionError):
        os.posix_fallocate(fd, 0, 2 * CAPACITY)
    with pytest.raises(PermissionError):  # or close it to the jobs that come later
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 0x10)  # F_SEAL_FUTURE_WRITE
    assert os.fstat(fd).st_size == CAPACITY


def test_a_lane_gives_back_whatever_it_does_not_need(device: HostDevice) -> None:
    use_store(lane_fd(device, 4 * MIB), 4 * MIB)
    device.resize_lane(1, MIB)
    assert (device.lane_size(1), device.used_bytes()) == (MIB, MIB)


def test_what_a_job_writes_behind_the_end_is_counted(device: HostDevice) -> None:
    fd = lane_fd(device)
    use_store(fd, MIB)
    assert device.overuse({}) == Overuse({}, {}, {})
    os.pwrite(fd, b"x", 8 * MIB)
    assert device.overuse({}).lanes == {1: memfd.PAGE}
    use_store(fd, 3 * MIB)
    device.resize_lane(1, 3 * MIB)
    assert device.overuse({}).lanes == {1: memfd.PAGE}
    device.close_lane(1)
    assert device.overuse({}).lanes == {}


def test_no_lane_is_larger_than_the_device(device: HostDevice) -> None:
    with pytest.raises(DeviceError, match="device memory for lane 1"):
        device.open_lane(1, CAPACITY + 1)
    device.open_lane(1, CAPACITY)
    with pytest.raises(DeviceError, match="device memory for lane 1"):
        device.resize_lane(1, CAPACITY + 1)


def test_after_a_restart_a_lane_gives_back_what_others_have_left_behind_its_end(device: HostDevice) -> None:
    """The one that needed it has ended meanwhile."""
    use_store(lane_fd(device, 4 * UNIT), 4 * UNIT)
    successor = HostDevice("host0", CAPACITY)
    (kept,) = duplicates(device.lane_files(1))
    successor.check_lane(kept.fd)
    successor.adopt_lane(1, [Extent(kept.fd, UNIT)])
    successor.resize_lane(1, UNIT)
    assert (successor.lane_size(1), successor.used_bytes()) == (UNIT, UNIT)
    successor.close()


def test_what_is_no_lane_is_not_taken_for_one(device: HostDevice) -> None:
    cut, (reading, writing) = memfd.create("lane", MIB, sealed=True), os.pipe()
    for fd in (cut, reading, writing):
        with pytest.raises(DeviceError, match="not a lane of host0"):
            device.check_lane(fd)
        os.close(fd)
