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
from carpool.devices.base import Device, DeviceError

CAPACITY = 64 * MIB


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
        fd = device.persistent_fd(7)
        assert device.used_bytes() == 0
        self.use(device, device.lane_fd(1), 4 * MIB)
        self.use(device, fd, 2 * MIB)
        assert device.used_bytes() == 6 * MIB

    def test_fresh_memory_is_zero(self, device: Device) -> None:
        device.open_lane(1, MIB)
        assert not any(self.use(device, device.lane_fd(1), MIB))
        assert not any(self.use(device, device.persistent_fd(1), MIB))

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

    def test_persistent_memory_is_the_jobs_own(self, device: Device) -> None:
        fd = device.persistent_fd(1)
        assert device.persistent_fd(1) == fd
        self.use(device, fd, MIB)
        assert not any(self.use(device, device.persistent_fd(2), MIB))
        device.drop_persistent(1)
        device.drop_persistent(1)
        assert device.used_bytes() == MIB
        assert not any(self.use(device, device.persistent_fd(1), MIB))

    def test_another_daemon_takes_over(self, device: Device, successor: Device) -> None:
        device.open_lane(3, 2 * MIB)
        self.use(device, device.lane_fd(3), MIB)
        self.use(device, device.persistent_fd(4), MIB)
        successor.adopt_lane(3, os.dup(device.lane_fd(3)))
        successor.adopt_lane(3, os.dup(device.lane_fd(3)))  # several jobs bring the same lane
        successor.adopt_persistent(4, os.dup(device.persistent_fd(4)))
        device.close()
        assert (successor.lane_size(3), successor.used_bytes()) == (2 * MIB, 2 * MIB)
        assert any(self.use(successor, successor.lane_fd(3), MIB))
        assert any(self.use(successor, successor.persistent_fd(4), MIB))

    def test_nothing_is_left_open(self, device: Device) -> None:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for lane in range(1, 4):
            device.open_lane(lane, MIB)
            device.persistent_fd(lane)
        device.close_lane(2)
        device.close()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        assert device.used_bytes() == 0
