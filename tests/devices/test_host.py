"""The host device: the contract, and what only memfds can do."""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Iterator

import pytest
from device_contract import CAPACITY, DeviceContract

from carpool.core.model import GIB, MIB
from carpool.devices.base import Device, DeviceError
from carpool.devices.host import PERSISTENT_WINDOWS, HostDevice


@pytest.fixture
def device() -> Iterator[HostDevice]:
    made = HostDevice("host0", CAPACITY)
    yield made
    made.close()


@pytest.fixture
def successor() -> Iterator[HostDevice]:
    made = HostDevice("host0", CAPACITY)
    yield made
    made.close()


class TestHost(DeviceContract):
    def use(self, device: Device, fd: int, size: int) -> bytes:
        with mmap.mmap(fd, size) as memory:
            before = memory[:]
            memory[:] = b"\x5a" * size
        return before


def test_bytes_beyond_a_lane_raise_sigbus(device: HostDevice) -> None:
    device.open_lane(1, MIB)
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGBUS, signal.SIG_DFL)
        with mmap.mmap(device.lane_fd(1), MIB) as memory:
            device.resize_lane(1, 0)
            memory[0] = 1
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGBUS


def test_persistent_memory_cannot_be_resized_by_a_job(device: HostDevice) -> None:
    fd = device.persistent_fd(1)
    assert os.fstat(fd).st_size == PERSISTENT_WINDOWS * GIB
    for size in (0, PERSISTENT_WINDOWS * GIB * 2):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)


def test_impossible_capacities_and_sizes(device: HostDevice) -> None:
    with pytest.raises(DeviceError, match="capacity"):
        HostDevice("host1", 0)
    with pytest.raises(DeviceError, match="cannot create"):
        device.open_lane(1, 1 << 63)
