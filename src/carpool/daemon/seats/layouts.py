"""How the memory of a device reaches the processes of jobs: as files, or in extents (`carpool.devices.base`).

`layout_of` chooses once for each device.  What the daemon does differently for the one and for the other, from the
first descriptor of a process to what a restarted daemon finds with its shim, is in these two classes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from carpool.core.model import LaneId, MemoryClass
from carpool.daemon.jobs.held import Held
from carpool.daemon.jobs.seat_table import BoardError
from carpool.daemon.jobs.table import JobRecord, Pieces
from carpool.daemon.seats.kept_fds import BANK, LANE, extent_names, kept_extents, memory_name
from carpool.daemon.seats.ledger import Entry
from carpool.daemon.seats.record import set_limits
from carpool.devices.base import BankId, DeviceBackend, DeviceError, Extent, ExtentDevice, as_extents, single
from carpool.devices.paged import PagedDevice, in_pages
from carpool.protocol.seat import Kind

Kept = dict[str, int]
P, E = MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL


class MemoryLayout(Protocol):
    """Of one device."""

    kind: Kind
    """By which name libcarpool knows it."""
    extents: bool
    """Whether memory is sent to processes piece by piece, and copied by the daemon."""

    def driver_serves(self, job: JobRecord) -> bool:
        """Whether the device's driver serves the memory of the job's processes, and the daemon makes none."""
        ...

    def begin(self, job: JobRecord) -> None:
        """A process of the job has got its seat: what it has, or may have, before it is granted anything new."""
        ...

    def setup_memory(self, job: JobRecord, lane_owner: int) -> list[Held]:
        """What SETUP brings beside the board.  Raises BoardError, DeviceError.

        They are those of the lane and the bank that the daemon has given to the job, whatever its seat says.
        """
        ...

    def names(self, job: JobRecord) -> list[str]:
        """Under which the job's shim keeps its lane and its bank."""
        ...

    def open_lane(self, lane: LaneId, size: int) -> None:
        """Raises DeviceError."""
        ...

    def resize_lane(self, lane: LaneId, size: int) -> int | None:
        """The end behind which the jobs there have to let go of memory; None: nothing was cut.  Raises DeviceError."""
        ...

    def hear_bank_cuts(self, hear: Callable[[BankId], None]) -> None:
        """``hear`` is told of free banks that have lost memory which jobs may still have mapped."""
        ...

    def check(self, job: JobRecord, kept: Kept) -> None:
        """After a restart: whether this can be a job's memory.  Raises BoardError, DeviceError, OSError, ValueError."""
        ...

    def check_seat(self, job: JobRecord, entry: Entry, kept: Kept) -> None:
        """Whether nothing of what the job was given is missing.  Raises BoardError, DeviceError."""
        ...

    def take_over(self, job: JobRecord, entry: Entry, kept: Kept) -> None:
        """The job's lane and bank from what its shim has kept.  Owns the descriptors.  It has been checked."""
        ...


def layout_of(device: DeviceBackend) -> MemoryLayout:
    """The one place in which the kind of a device decides."""
    return InFiles(device) if in_pages(device) else InExtents(as_extents(device))


class InFiles:
    """A lane or bank is one file, which a process maps as a whole; the kernel makes memory with its first use."""

    kind, extents = Kind.HOST, False

    def __init__(self, device: PagedDevice) -> None:
        self._device = device

    def driver_serves(self, job: JobRecord) -> bool:
        return False

    def begin(self, job: JobRecord) -> None:
        assert job.seated is not None
        set_limits(job.seated.seat, job.granted)

    def setup_memory(self, job: JobRecord, lane_owner: int) -> list[Held]:
        assert job.lane is not None
        if job.bank is None:
            raise BoardError("its memory is in its store: its process has been answered before")
        lane = Held(lane_owner, single(self._device.lane_files(job.lane)))
        bank = Held(self._device.bank_owner(job.bank), single(self._device.bank_files(job.bank)))
        return [lane, bank, Held(job.owner, self._device.store_fd(job.id))]

    def names(self, job: JobRecord) -> list[str]:
        return [f"{LANE}:{job.lane}", *(f"{BANK}:{job.device}:{bank}" for bank in sorted(job.kept_banks))]

    def open_lane(self, lane: LaneId, size: int) -> None:
        self._device.open_lane(lane, size)

    def resize_lane(self, lane: LaneId, size: int) -> int | None:
        self._device.resize_lane(lane, size)
        return None

    def hear_bank_cuts(self, hear: Callable[[BankId], None]) -> None:
        """Nobody has to let go: pages that are punched are gone for everybody."""

    def check(self, job: JobRecord, kept: Kept) -> None:
        if not {LANE, BANK} <= {name.split(":")[0] for name in kept}:
            raise BoardError("not what this version keeps")
        for name, fd in kept.items():
            if name.startswith(f"{BANK}:"):
                self._device.check_bank(_number(name), job.owner, [_whole(fd)])

    def check_seat(self, job: JobRecord, entry: Entry, kept: Kept) -> None:
        if f"{BANK}:{self._device.id}:{entry.bank}" not in kept:
            raise BoardError(f"its bank {entry.bank} is not among what was kept")
        if (lane := kept.get(f"{LANE}:{entry.lane}")) is not None:
            self._device.check_lane(lane)

    def take_over(self, job: JobRecord, entry: Entry, kept: Kept) -> None:
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
    """A lane or bank is any number of extents, which exist when they are made: none, before a grant needs them.

    None may be missing where the job may compute.
    """

    kind, extents = Kind.CUDA, True

    def __init__(self, device: ExtentDevice) -> None:
        self._device = device

    def driver_serves(self, job: JobRecord) -> bool:
        return job.submitted_exclusive

    def begin(self, job: JobRecord) -> None:
        assert job.lane is not None
        job.pieces = {E: Pieces(job.lane), P: Pieces(job.bank or 0)}

    def setup_memory(self, job: JobRecord, lane_owner: int) -> list[Held]:
        return []

    def names(self, job: JobRecord) -> list[str]:
        names: list[str] = []
        for kind, pieces in job.pieces.items():
            names += extent_names(memory_name(kind, self._device.id, pieces.number), pieces.sizes)
        return names

    def open_lane(self, lane: LaneId, size: int) -> None:
        self._device.open_lane(lane, 0)

    def resize_lane(self, lane: LaneId, size: int) -> int | None:
        """Lanes grow when somebody is granted more of them."""
        if size >= self._device.lane_size(lane):
            return None
        self._device.resize_lane(lane, size)
        return self._device.lane_size(lane)

    def hear_bank_cuts(self, hear: Callable[[BankId], None]) -> None:
        self._device.hear_bank_cuts(hear)

    def check(self, job: JobRecord, kept: Kept) -> None:
        """What is missing shows beside the limits in the seat."""

    def check_seat(self, job: JobRecord, entry: Entry, kept: Kept) -> None:
        if self.driver_serves(job):
            return  # it has nothing of ours
        for kind, number, limit in zip((P, E), _numbers(entry), entry.limits, strict=True):
            files = self._found(kind, number, kept)
            if sum(file.size for file in files) < limit:
                raise DeviceError(f"less {kind} memory was kept than it may use")
            if kind is P:
                self._device.check_bank(number, job.owner, files)

    def take_over(self, job: JobRecord, entry: Entry, kept: Kept) -> None:
        assert job.seated is not None
        job.found = True
        for kind, number in zip((P, E), _numbers(entry), strict=True):
            files = [] if job.seated.whole else self._found(kind, number, kept)
            job.pieces[kind] = Pieces(number, [file.size for file in files])
            for name in extent_names(memory_name(kind, self._device.id, number), job.pieces[kind].sizes):
                del kept[name]
            if kind is E:
                self._device.adopt_lane(number, files)
            elif not job.seated.whole:
                job.kept_banks = {number}
                self._device.adopt_bank(number, job.owner, files)
        for fd in kept.values():  # of what it had before, and was about to leave
            os.close(fd)

    def _found(self, kind: MemoryClass, number: int, kept: Kept) -> list[Extent]:
        return kept_extents(memory_name(kind, self._device.id, number), kept)


def _numbers(entry: Entry) -> tuple[BankId, LaneId]:
    """Of the job's bank and lane."""
    assert entry.lane is not None
    return entry.bank or 0, entry.lane


def _number(name: str) -> int:
    return int(name.rpartition(":")[2])


def _whole(fd: int) -> Extent:
    """What a shim kept under the name of a bank: all of it, in one file."""
    return Extent(fd, os.fstat(fd).st_size)
