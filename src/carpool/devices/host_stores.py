"""Host stores: one sealed sparse file of memory per attached job process, on every kind of device.

Lanes of a host device: one sealed file of memory each, as large as the device, for a lane of any size.

No process can change the size of such a file, so no job can take mapped memory away from another job or the daemon.
A lane may hold as many bytes as its size.  The kernel does not stop a job beyond that: `Lanes.overuse` counts pages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from carpool.core.model import DeviceId, JobId, LaneId
from carpool.devices import memfd
from carpool.devices.base import DeviceError, Extent
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
        """Return the descriptor of a job's store, which is made at the first call.  Raises DeviceError."""
        if job not in self._of:
            self._of[job] = memfd.create(f"carpool-{self._device}-store{job}", self._size, sealed=True)
        return self._of[job]

    def drop(self, job: JobId) -> None:
        """Close a store; a job without one is not an error."""
        fd = self._of.pop(job, None)
        if fd is not None:
            os.close(fd)

    def emptying(self, job: JobId) -> Callable[[], None]:
        """Return a call, for any thread, that gives the store's pages back.  The store may be dropped meanwhile."""
        fd = os.dup(self.fd(job))
        return lambda: memfd.punch_and_close(fd, self._size)

    def adopt(self, job: JobId, fd: int) -> None:
        """Take over a store of an earlier daemon, and own ``fd``."""
        self.drop(job)
        self._of[job] = fd

    def check(self, fd: int) -> None:
        """Raise DeviceError if ``fd`` cannot be a store of this device."""
        if not memfd.is_sealed(fd, self._size):
            raise DeviceError(f"the kept file is not a store of {self._device}: wrong size or seals")

    def pages(self) -> int:
        """Return the bytes of the pages of all stores."""
        return sum(memfd.pages(fd) for fd in self._of.values())

    def close(self) -> None:
        """Close all stores."""
        for job in tuple(self._of):
            self.drop(job)


@dataclass(slots=True)
class _Lane:
    """``end``: offset beyond which jobs that keep to their limits have made no page."""

    fd: int
    size: int
    end: int


class Lanes:
    """The lanes of one device of ``capacity`` bytes."""

    def __init__(self, device: DeviceId, capacity: int) -> None:
        self._device = device
        self._file_size = memfd.round_up(capacity, memfd.PAGE)
        self._of: dict[LaneId, _Lane] = {}

    def open(self, lane: LaneId, size: int) -> None:
        """Make a lane.  Raises DeviceError."""
        if lane in self._of:
            raise DeviceError(f"lane {lane} of {self._device} is already open")
        size = self._possible(lane, size)
        fd = memfd.create(f"carpool-{self._device}-lane{lane}", self._file_size, sealed=True)
        self._of[lane] = _Lane(fd, size, size)

    def resize(self, lane: LaneId, size: int) -> None:
        """Resize a lane, and give back pages behind the new end.  Raises DeviceError."""
        known, size = self._known(lane), self._possible(lane, size)
        try:
            memfd.cut(known.fd, size, known.end)
        except OSError as error:
            raise DeviceError(f"lane {lane} of {self._device} cannot become {size} bytes: {error}") from None
        known.size = known.end = size

    def close(self, lane: LaneId) -> None:
        """Close a lane.  Raises DeviceError for an unknown one."""
        os.close(self._known(lane).fd)
        del self._of[lane]

    def file(self, lane: LaneId) -> Extent:
        """Return the lane's descriptor and size.  Raises DeviceError."""
        known = self._known(lane)
        return Extent(known.fd, known.size)

    def check(self, fd: int) -> None:
        """Check ``fd`` before `adopt`.  Raises DeviceError."""
        if not memfd.is_sealed(fd, self._file_size):
            raise DeviceError(f"the kept file is not a lane of {self._device}: wrong size or seals")

    def adopt(self, lane: LaneId, files: Sequence[Extent]) -> None:
        """Adopt a lane.  Its largest size so far is unknown: the next `resize` gives back all pages behind the end."""
        for file in files:
            known = self._of.setdefault(lane, _Lane(file.fd, 0, self._file_size))
            known.size = max(known.size, file.size)
            if known.fd != file.fd:
                os.close(file.fd)

    def used(self) -> int:
        """Return the bytes of the pages of all lanes."""
        return sum(memfd.pages(known.fd) for known in self._of.values())

    def overuse(self) -> dict[LaneId, int]:
        """Return by how many bytes lanes hold more than their size."""
        beyond = {number: memfd.pages(lane.fd) - lane.size for number, lane in self._of.items()}
        return {number: size for number, size in beyond.items() if size > 0}

    def close_all(self) -> None:
        """Close all lanes."""
        for lane in tuple(self._of):
            self.close(lane)

    def _possible(self, lane: LaneId, size: int) -> int:
        """Return ``size`` in whole pages.  Raises DeviceError for more than the device has."""
        if size > self._file_size:
            raise DeviceError(f"cannot create {size} bytes of device memory for lane {lane} of {self._device}")
        return memfd.round_up(size, memfd.PAGE)

    def _known(self, lane: LaneId) -> _Lane:
        try:
            return self._of[lane]
        except KeyError:
            raise DeviceError(f"{self._device} has no lane {lane}") from None
