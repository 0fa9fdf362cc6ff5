"""What the daemon asks of a device.  Every kind passes the contract suite in ``tests/devices/contract.py``.

A device's memory consists of *lanes*, which several jobs map, and *persistent* memory, one piece per attached job
process.  Both are file descriptors; the daemon never touches the bytes.  The device only creates, sizes and counts:
limits are the core's business (grants), so a device does not refuse what the core has decided.

Sizes are bytes.  Descriptors returned by `lane_fd` and `persistent_fd` belong to the device; callers pass them on
(SCM_RIGHTS duplicates them) and never close them.
"""

from __future__ import annotations

from typing import Protocol

from carpool.core.model import DeviceId, JobId, LaneId


class DeviceError(Exception):
    """The device cannot do what was asked; the text is for people."""


class Device(Protocol):
    """One device.  No method blocks for longer than a system call."""

    @property
    def id(self) -> DeviceId: ...

    @property
    def kind(self) -> str:
        """ "host" or "cuda"."""
        ...

    @property
    def capacity(self) -> int:
        """Bytes that lanes and persistent memory may hold together."""
        ...

    @property
    def window(self) -> int:
        """Bytes of address space that an arena of a job needs at most: the capacity in whole GiB."""
        ...

    def open_lane(self, lane: LaneId, size: int) -> None:
        """Create a lane.  Raises DeviceError if the memory cannot be had or the lane is already open."""
        ...

    def resize_lane(self, lane: LaneId, size: int) -> None:
        """The first ``size`` bytes keep their content.  Bytes beyond the end of a lane are never accessible."""
        ...

    def close_lane(self, lane: LaneId) -> None:
        """The memory is free as soon as no job maps it any more.  Raises DeviceError for an unknown lane."""
        ...

    def lane_fd(self, lane: LaneId) -> int:
        """Raises DeviceError for an unknown lane."""
        ...

    def lane_size(self, lane: LaneId) -> int:
        """The size as last asked for, rounded up to whole pages."""
        ...

    def persistent_fd(self, job: JobId) -> int:
        """The persistent memory of a job's attached process; created empty at the first call."""
        ...

    def drop_persistent(self, job: JobId) -> None:
        """Give a job's persistent memory back.  Nothing happens if it has none."""
        ...

    def adopt_lane(self, lane: LaneId, fd: int) -> None:
        """Take over a lane of an earlier daemon.  Owns ``fd`` from now on; a duplicate of a known lane is closed."""
        ...

    def adopt_persistent(self, job: JobId, fd: int) -> None:
        """Take over a job's persistent memory of an earlier daemon.  Owns ``fd`` from now on."""
        ...

    def used_bytes(self) -> int:
        """Bytes of memory that really exist behind lanes and persistent memory at this moment."""
        ...

    def close(self) -> None:
        """Let go of all descriptors; jobs that hold duplicates keep theirs."""
        ...
