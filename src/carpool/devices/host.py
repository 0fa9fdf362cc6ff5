"""The host device: real memory of the machine, as memfds of a fixed total capacity.

A lane's file is as large as the lane, so touching bytes beyond it raises SIGBUS in the job: the kernel enforces the
lane's size.  Persistent memory is a sparse file of `PERSISTENT_WINDOWS` windows, which libcarpool maps at several
offsets; only pages that were touched exist, and those are what `used_bytes` counts.
"""

from __future__ import annotations

import fcntl
import os

from carpool.core.model import GIB, DeviceId, JobId, LaneId
from carpool.devices.base import DeviceError

PAGE = os.sysconf("SC_PAGE_SIZE")
PERSISTENT_WINDOWS = 16
_BLOCK = 512  # unit of st_blocks


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
        self._lanes: dict[LaneId, int] = {}
        self._persistent: dict[JobId, int] = {}

    def open_lane(self, lane: LaneId, size: int) -> None:
        if lane in self._lanes:
            raise DeviceError(f"lane {lane} of {self.id} is already open")
        self._lanes[lane] = _memfd(f"carpool-{self.id}-lane{lane}", round_up(size, PAGE), seals=0)

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

    def persistent_fd(self, job: JobId) -> int:
        if job not in self._persistent:
            # The size never changes, and sealing it keeps every mapping of it valid whatever a job does.
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            name = f"carpool-{self.id}-job{job}"
            self._persistent[job] = _memfd(name, PERSISTENT_WINDOWS * self.window, seals=seals)
        return self._persistent[job]

    def drop_persistent(self, job: JobId) -> None:
        fd = self._persistent.pop(job, None)
        if fd is not None:
            os.close(fd)

    def adopt_lane(self, lane: LaneId, fd: int) -> None:
        if lane in self._lanes:
            os.close(fd)
        else:
            self._lanes[lane] = fd

    def adopt_persistent(self, job: JobId, fd: int) -> None:
        self.drop_persistent(job)
        self._persistent[job] = fd

    def used_bytes(self) -> int:
        fds = (*self._lanes.values(), *self._persistent.values())
        return sum(os.fstat(fd).st_blocks for fd in fds) * _BLOCK

    def close(self) -> None:
        for fd in (*self._lanes.values(), *self._persistent.values()):
            os.close(fd)
        self._lanes.clear()
        self._persistent.clear()


def _memfd(name: str, size: int, *, seals: int) -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
    except (OSError, OverflowError) as error:
        os.close(fd)
        raise DeviceError(f"cannot create {size} bytes of device memory: {error}") from None
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd
