"""The host device: the contract, and what only memfds can do."""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Iterator, Sequence

import pytest
from device_contract import CAPACITY, OWNER, DeviceContract, use_store

from carpool.core.model import GIB, MIB
from carpool.devices import memfd
from carpool.devices.base import DeviceError, Extent, single
from carpool.devices.host import BANK_WINDOWS, HostDevice
from carpool.protocol.seat import CHUNK


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


def test_a_lane_gives_back_whatever_it_does_not_need(device: HostDevice) -> None:
    device.open_lane(1, 4 * MIB)
    use_store(single(device.lane_files(1)), 4 * MIB)
    device.resize_lane(1, MIB)
    assert (device.lane_size(1), device.used_bytes()) == (MIB, MIB)


def test_bytes_beyond_a_lane_raise_sigbus(device: HostDevice) -> None:
    device.open_lane(1, MIB)
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGBUS, signal.SIG_DFL)
        with mmap.mmap(single(device.lane_files(1)), MIB) as memory:
            device.resize_lane(1, 0)
            memory[0] = 1
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGBUS


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
    work = device.surplus()
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
    assert device.surplus() is None
    device.open_lane(1, MIB)
    fill(single(device.lane_files(1)), 0, MIB)
    work = device.surplus()
    assert work is not None
    assert device.weights.take_for(1000, MIB) != bank  # while it is emptied
    work()
    assert memfd.extents(fd) == [(0, CAPACITY - MIB)] and device.surplus() is None


def test_what_larger_weights_have_left_gives_way(device: HostDevice) -> None:
    large, fd = with_weights(device, CAPACITY)
    device.weights.free(large)
    assert device.weights.take_for(1000, MIB) == large
    _, other = with_weights(device, 2 * MIB)
    work = device.surplus()
    assert work is not None
    device.weights.free(large)
    assert device.weights.take_for(1000, CAPACITY) != large  # its end is about to go
    work()
    assert device.used_bytes() == CAPACITY and memfd.pages(other) == 2 * MIB
    assert memfd.extents(fd) == [(0, CAPACITY - 2 * MIB)]
    assert device.weights.take_for(1000, CAPACITY) == large


def test_weights_that_are_used_stay(device: HostDevice) -> None:
    with_weights(device, CAPACITY), with_weights(device, MIB)
    assert device.surplus() is None
