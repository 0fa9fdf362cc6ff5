"""The forms in which a device's memory reaches the processes of jobs: as files, or in extents (`carpool.devices.base`).

`layout_of` chooses once for each device.  These two classes hold everything that the daemon does differently for files
and for extents, from a process's first descriptor to what a restarted daemon finds with its shim.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from carpool.core.model import LaneId, MemoryClass
from carpool.daemon.jobs.seat_table import BoardError, OwnedFd
from carpool.daemon.jobs.table import JobRecord, Pieces
from carpool.daemon.seats.kept_fds import BANK, LANE, extent_names, kept_extents, memory_name
from carpool.daemon.seats.ledger import Entry
from carpool.daemon.seats.record import set_limits
from carpool.devices.base import (
    BankId,
    DeviceBackend,
    DeviceError,
    Extent,
    ExtentDevice,
    PagedDevice,
    as_extents,
    in_pages,
    single,
)
from carpool.protocol.seat import Kind

Kept = dict[str, int]
P, E = MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL


class MemoryLayout(Protocol):
    """The memory layout of one device."""

    kind: Kind
    """By which name libcarpool knows it."""
    extents: bool
    """Whether memory is sent to processes piece by piece, and copied by the daemon."""

    def driver_serves(self, job: JobRecord) -> bool:
        """Return whether the device's driver serves the memory of the job's processes, and the daemon makes none."""
        ...

    def begin(self, job: JobRecord) -> None:
        """Record what a newly seated process has, or may have, before its job is granted any further memory."""
        ...

    def setup_memory(self, job: JobRecord, lane_owner: int) -> list[OwnedFd]:
        """Return the memory that SETUP brings beside the board.  Raises BoardError, DeviceError.

        The lane and the bank are those that the daemon has given to the job, whatever the job's seat says.
        """
        ...

    def names(self, job: JobRecord) -> list[str]:
        """List the names under which the job's shim keeps its lane and its bank."""
        ...

    def open_lane(self, lane: LaneId, size: int) -> None:
        """Open a lane.  Raises DeviceError."""
        ...

    def resize_lane(self, lane: LaneId, size: int) -> int | None:
        """Resize a lane; return the end behind which jobs must release memory; None: no cut.  Raises DeviceError."""
        ...

    def hear_bank_cuts(self, hear: Callable[[BankId], None]) -> None:
        """Call ``hear`` for free banks that have lost memory which jobs may still have mapped."""
        ...

    def check(self, job: JobRecord, kept: Kept) -> None:
        """After a restart, check that this can be job memory.  Raises BoardError, DeviceError, OSError, ValueError."""
        ...

    def check_seat(self, job: JobRecord, entry: Entry, kept: Kept, made: int = 0) -> None:
        """Check that nothing that the job was given is missing.  Raises BoardError, DeviceError.

        ``made``: bytes of its persistent limit that the job makes itself, as it says: what it says too much it lacks.
        """
        ...

    def take_over(self, job: JobRecord, entry: Entry, kept: Kept) -> None:
        """Take over the job's lane and bank from checked descriptors that its shim has kept.  Owns the descriptors."""
        ...


def layout_of(device: DeviceBackend) -> MemoryLayout:
    """Return the layout for a device; no other code decides by the kind of a device."""
    return InFiles(device) if in_pages(device) else InExtents(as_extents(device))


class InFiles:
    """A lane or bank is one file, which a process maps as a whole; the kernel makes memory at its first use."""

    kind, extents = Kind.HOST, False

    def __init__(self, device: PagedDevice) -> None:
        self._device = device

    def driver_serves(self, job: JobRecord) -> bool:
        """Always False: the daemon makes the memory."""
        return False

    def begin(self, job: JobRecord) -> None:
        """Write the job's limits into its seat."""
        set_limits(job.attached.seat, job.granted)

    def setup_memory(self, job: JobRecord, lane_owner: int) -> list[OwnedFd]:
        """Return the files of the job's lane and bank."""
        assert job.lane is not None
        if job.bank is None:
            raise BoardError("its memory is in its store: its process has been answered before")
        lane = OwnedFd(lane_owner, single(self._device.lane_files(job.lane)))
        bank = OwnedFd(self._device.bank_owner(job.bank), single(self._device.bank_files(job.bank)))
        return [lane, bank, OwnedFd(job.owner, self._device.store_fd(job.id))]

    def names(self, job: JobRecord) -> list[str]:
        """List the names of the job's lane and banks."""
        return [f"{LANE}:{job.lane}", *(f"{BANK}:{job.device}:{bank}" for bank in sorted(job.kept_banks))]

    def open_lane(self, lane: LaneId, size: int) -> None:
        """Make the lane's file."""
        self._device.open_lane(lane, size)

    def resize_lane(self, lane: LaneId, size: int) -> int | None:
        """Resize the lane's file; no job has to let go of anything."""
        self._device.resize_lane(lane, size)
        return None

    def hear_bank_cuts(self, hear: Callable[[BankId], None]) -> None:
        """Do nothing, as no job has to release memory: pages that are punched are gone for every process."""

    def check(self, job: JobRecord, kept: Kept) -> None:
        """Check that lane and banks are there, and that the banks are the owner's."""
        if not {LANE, BANK} <= {name.split(":")[0] for name in kept}:
            raise BoardError("not in the format of this version")
        for name, fd in kept.items():
            if name.startswith(f"{BANK}:"):
                self._device.check_bank(_number(name), job.owner, [_whole(fd)])

    def check_seat(self, job: JobRecord, entry: Entry, kept: Kept, made: int = 0) -> None:
        """Check that the bank and lane of the ledger are there."""
        if f"{BANK}:{self._device.id}:{entry.bank}" not in kept:
            raise BoardError(f"its bank {entry.bank} was not kept")
        if (lane := kept.get(f"{LANE}:{entry.lane}")) is not None:
            self._device.check_lane(lane)

    def take_over(self, job: JobRecord, entry: Entry, kept: Kept) -> None:
        """Adopt the lane and the banks."""
        for name, fd in kept.items():
            if name.startswith(BANK):
                job.kept_banks.add(_number(name))
                self._device.adopt_bank(_number(name), job.owner, [_whole(fd)])
            elif name == f"{LANE}:{job.lane}":
                assert job.lane is not None
                self._device.adopt_lane(job.lane, [Extent(fd, entry.granted.ephemeral)])
            else:  # the earlier daemon died while it moved the job
                job.moving = True
                os.close(fd)


class InExtents:
    """A lane or bank is a list of extents, which are made when a grant needs them; before that there are none.

    No extent may be missing where the job may compute.
    """

    kind, extents = Kind.CUDA, True

    def __init__(self, device: ExtentDevice) -> None:
        self._device = device

    def driver_serves(self, job: JobRecord) -> bool:
        """Return whether the job was submitted to have its device to itself."""
        return job.submitted_exclusive

    def begin(self, job: JobRecord) -> None:
        """Begin with a lane and a bank without extents."""
        assert job.lane is not None
        job.pieces = {E: Pieces(job.lane), P: Pieces(job.bank or 0)}

    def setup_memory(self, job: JobRecord, lane_owner: int) -> list[OwnedFd]:
        """Return nothing: extents are sent when memory is granted."""
        return []

    def names(self, job: JobRecord) -> list[str]:
        """List the names of all extents that the job has."""
        names: list[str] = []
        for kind, pieces in job.pieces.items():
            names += extent_names(memory_name(kind, self._device.id, pieces.number), pieces.sizes)
        return names

    def open_lane(self, lane: LaneId, size: int) -> None:
        """Open the lane without extents."""
        self._device.open_lane(lane, 0)

    def resize_lane(self, lane: LaneId, size: int) -> int | None:
        """Cut a lane; a lane grows only when a job is granted more of it."""
        if size >= self._device.lane_size(lane):
            return None
        self._device.resize_lane(lane, size)
        return self._device.lane_size(lane)

    def hear_bank_cuts(self, hear: Callable[[BankId], None]) -> None:
        """Call ``hear`` with each bank that the device cuts."""
        self._device.hear_bank_cuts(hear)

    def check(self, job: JobRecord, kept: Kept) -> None:
        """Check nothing: missing memory shows in `check_seat`, against the recorded limits."""

    def check_seat(self, job: JobRecord, entry: Entry, kept: Kept, made: int = 0) -> None:
        """Check that the extents cover the limits of the ledger."""
        if self.driver_serves(job):
            return  # the job has no memory made by the daemon
        for kind, number, limit in zip((P, E), _numbers(entry), entry.limits, strict=True):
            files = self._found(kind, number, kept)
            if sum(file.size for file in files) < limit - (made if kind is P else 0):
                raise DeviceError(f"less {kind} memory was kept than it may use")
            if kind is P:
                self._device.check_bank(number, job.owner, files)

    def take_over(self, job: JobRecord, entry: Entry, kept: Kept) -> None:
        """Adopt the extents."""
        job.adopted_unreported = True
        for kind, number in zip((P, E), _numbers(entry), strict=True):
            files = [] if job.attached.whole else self._found(kind, number, kept)
            job.pieces[kind] = Pieces(number, [file.size for file in files])
            for name in extent_names(memory_name(kind, self._device.id, number), job.pieces[kind].sizes):
                del kept[name]
            if kind is E:
                self._device.adopt_lane(number, files)
            elif not job.attached.whole:
                job.kept_banks = {number}
                self._device.adopt_bank(number, job.owner, files)
        for fd in kept.values():  # of memory that the job had before and was about to leave
            os.close(fd)

    def _found(self, kind: MemoryClass, number: int, kept: Kept) -> list[Extent]:
        return kept_extents(memory_name(kind, self._device.id, number), kept)


def _numbers(entry: Entry) -> tuple[BankId, LaneId]:
    """Return the numbers of the job's bank and lane."""
    assert entry.lane is not None
    return entry.bank or 0, entry.lane


def _number(name: str) -> int:
    return int(name.rpartition(":")[2])


def _whole(fd: int) -> Extent:
    """Return as one extent the whole file that a shim kept under the name of a bank."""
    return Extent(fd, os.fstat(fd).st_size)
