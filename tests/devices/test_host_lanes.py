"""Lanes of the host device: files whose size nobody can change, and what is counted in them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator

import pytest

from carpool.core.model import MIB
from carpool.devices import memfd
from carpool.devices.base import DeviceError, Extent, Overuse, single
from carpool.devices.host import HostDevice
from tests.devices.contract_base import CAPACITY, UNIT, duplicates, use_store


@pytest.fixture
def device() -> Iterator[HostDevice]:
    made = HostDevice("host0", CAPACITY)
    yield made
    made.close()


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
        with pytest.raises(DeviceError, match="no lane of host0"):
            device.check_lane(fd)
        os.close(fd)
