"""Host stores: one sealed sparse file of memory per attached job process, on every kind of device."""

from __future__ import annotations

import os
from collections.abc import Callable

from carpool.core.model import DeviceId, JobId
from carpool.devices import memfd
from carpool.devices.base import DeviceError
from carpool.protocol.seat import CHUNK


class Stores:
    """Stores with room for ``content`` bytes, and one more byte per chunk, which says where the chunk's content is."""

    def __init__(self, device: DeviceId, content: int) -> None:
        self._device = device
        self._size = content + content // CHUNK
        self._of: dict[JobId, int] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def fd(self, job: JobId) -> int:
        if job not in self._of:
            self._of[job] = memfd.create(f"carpool-{self._device}-store{job}", self._size, sealed=True)
        return self._of[job]

    def drop(self, job: JobId) -> None:
        fd = self._of.pop(job, None)
        if fd is not None:
            os.close(fd)

    def emptying(self, job: JobId) -> Callable[[], None]:
        """Return a call, for any thread, that gives the store's pages back.  The store may be dropped meanwhile."""
        fd = os.dup(self.fd(job))
        return lambda: memfd.punch_and_close(fd, self._size)

    def adopt(self, job: JobId, fd: int) -> None:
        self.drop(job)
        self._of[job] = fd

    def check(self, fd: int) -> None:
        """Raise DeviceError if ``fd`` cannot be a store of this device."""
        if not memfd.is_sealed(fd, self._size):
            raise DeviceError(f"what was kept is no store of {self._device}: wrong size or seals")

    def pages(self) -> int:
        return sum(memfd.pages(fd) for fd in self._of.values())

    def close(self) -> None:
        for job in tuple(self._of):
            self.drop(job)
