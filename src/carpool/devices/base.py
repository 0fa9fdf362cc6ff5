"""What the daemon asks of a device.  Every kind passes the contract suite in ``tests/devices/device_contract.py``.

A device's memory consists of *lanes*, which several jobs map, and *banks* (the recorded name of device buffers), which
jobs of one owner use one after another for persistent memory.  There is also one *store* in host memory per attached
job process, for its persistent memory while another job has the bank.  All are file descriptors; the daemon never
touches the bytes.
A store is one file; a lane or a bank is one (host), or any number of *extents*, which lie one after another: the offset
of the second is the size of the first.  The device only creates, sizes and counts: the core sets limits
(grants), so a device does not refuse what the core has decided.

Memory exists when it is made, or only when it is used: a lane or bank of whatever size takes up to that much of the
device.  What a call that enlarged it has added can be given back by itself.

Sizes are bytes.  Descriptors returned by `lane_files`, `bank_files` and `store_fd` belong to the device; callers pass
them on (SCM_RIGHTS duplicates them) and never close them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

from carpool.core.model import DeviceId, JobId, LaneId

BankId = int  # never 0, never used twice on a device


class DeviceError(Exception):
    """The device cannot do what was asked; the text is for people."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A file of device memory."""

    fd: int
    size: int


def single(files: Sequence[Extent]) -> int:
    """The descriptor of a lane or bank that is one file.  Raises DeviceError if it is not."""
    if len(files) != 1:
        raise DeviceError(f"{len(files)} pieces of device memory where one file was expected")
    return files[0].fd


class DeviceBackend(Protocol):
    """One device.  No method blocks for longer than a system call, or than it takes to make and clear the memory."""

    @property
    def id(self) -> DeviceId: ...

    @property
    def kind(self) -> str:
        """ "host" or "cuda"."""
        ...

    @property
    def uuid(self) -> str:
        """Its driver's name for it, by which jobs and NVML find it; empty for host devices."""
        ...

    @property
    def model(self) -> str:
        """What its maker calls it; empty for host devices."""
        ...

    @property
    def checkpoint(self) -> bool:
        """Whether its driver can suspend processes and resume them."""
        ...

    @property
    def capacity(self) -> int:
        """Bytes that lanes and banks may hold together."""
        ...

    @property
    def context(self) -> int:
        """Bytes that a process is expected to take of it by using it at all, until some have been seen; 0: none."""
        ...

    @property
    def window(self) -> int:
        """Bytes of address space that an arena of a job needs at most: the capacity in whole GiB."""
        ...

    @property
    def spare(self) -> int:
        """Bytes for contexts beside the capacity, as far as is known where nobody measures it."""
        ...

    # Lanes

    def open_lane(self, lane: LaneId, size: int) -> None:
        """Create a lane.  Raises DeviceError if the memory cannot be had or the lane is already open."""
        ...

    def resize_lane(self, lane: LaneId, size: int) -> None:
        """The first ``size`` bytes keep their content.  Jobs may not use bytes beyond the end of a lane.

        Extents are added or removed at the end, and those that stay are the same.  Raises DeviceError if the memory
        cannot be had; then nothing has changed.
        """
        ...

    def close_lane(self, lane: LaneId) -> None:
        """The memory is free as soon as no job maps it any more.  Raises DeviceError for an unknown lane."""
        ...

    def lane_files(self, lane: LaneId) -> tuple[Extent, ...]:
        """In order.  Raises DeviceError for an unknown lane."""
        ...

    def lane_size(self, lane: LaneId) -> int:
        """The size as last asked for, rounded up to what the device can give back."""
        ...

    def adopt_lane(self, lane: LaneId, files: Sequence[Extent]) -> None:
        """Take over a lane of an earlier daemon.  Owns the descriptors; duplicates of known ones are closed."""
        ...

    # Banks

    def take_bank(self, owner: int, wanted: int, last: BankId | None) -> BankId:
        """A free bank of the owner, for one job, until `free_bank`; a new one if there is none of use.

        Of those that have most of the ``wanted`` bytes: the ``last`` one, which the job has mapped, else the smallest.
        Its content is what the one before left.  A job that brings nothing (``wanted`` 0) gets an empty one, so that
        pages stay with those who need them.  Raises DeviceError if the memory cannot be had.
        """
        ...

    def grow_bank(self, bank: BankId, size: int) -> None:
        """Let the bank that a job holds have at least ``size`` bytes, as far as memory does not come by being used.

        What is there keeps its content, and extents are added at the end.  Raises DeviceError if the memory cannot be
        had (then nothing has changed), and for an unknown bank.
        """
        ...

    def cut_bank(self, bank: BankId, size: int) -> None:
        """The bank that a job holds needs no more than ``size`` bytes; the first ones keep their content.

        Gives back what it can, as far as jobs do not do that themselves.  Raises DeviceError for an unknown bank.
        """
        ...

    def free_bank(self, bank: BankId) -> None:
        """Its pages stay, for the next job.  Nothing happens if it is free or unknown."""
        ...

    def bank_files(self, bank: BankId) -> tuple[Extent, ...]:
        """In order.  Raises DeviceError for an unknown bank."""
        ...

    def bank_owner(self, bank: BankId) -> int:
        """Raises DeviceError for an unknown bank."""
        ...

    def close_banks(self, owner: int) -> None:
        """No job of that owner is on the device any more."""
        ...

    def adopt_bank(self, bank: BankId, owner: int, files: Sequence[Extent]) -> None:
        """Take over a bank of an earlier daemon, free.  Owns the descriptors; duplicates of known ones are closed."""
        ...

    def check_bank(self, bank: BankId, owner: int, files: Sequence[Extent]) -> None:
        """Before `adopt_bank`: whether it can be that bank of that owner.  Raises DeviceError."""
        ...

    def hold_bank(self, bank: BankId) -> None:
        """A job was found in this bank.  Raises DeviceError for an unknown bank."""
        ...

    def surplus(self, usable: int) -> Callable[[], None] | None:
        """What there is to do, in a thread, while lanes and banks have more pages than ``usable`` bytes.

        The call empties a free bank, as far as necessary, the one with fewest pages first; no job gets that bank before
        the call has returned.  None: nothing to do.
        """
        ...

    # Stores

    def store_fd(self, job: JobId) -> int:
        """The store of a job's attached process (layout: ``native/abi/seat.h``); created at the first call."""
        ...

    def drop_store(self, job: JobId) -> None:
        """Give a job's store back.  Nothing happens if it has none."""
        ...

    def adopt_store(self, job: JobId, fd: int) -> None:
        """Take over a job's store of an earlier daemon.  Owns ``fd`` from now on."""
        ...

    def check_store(self, fd: int) -> None:
        """Before `adopt_store`: whether ``fd`` can be a store.  Raises DeviceError."""
        ...

    def used_bytes(self) -> int:
        """Bytes of memory that really exist behind lanes and banks at this moment."""
        ...

    def left_bytes(self, granted: Mapping[BankId, int]) -> int:
        """Bytes of `used_bytes` in banks beyond what their holders are granted: what earlier jobs have left there.

        They are given back, or used, when they are needed.  ``granted``: of each bank that a job holds.
        """
        ...

    def stored_bytes(self) -> int:
        """Bytes of host memory that really exist behind stores at this moment."""
        ...

    def close(self) -> None:
        """Let go of all descriptors; jobs that hold duplicates keep theirs."""
        ...


class ExtentDevice(DeviceBackend, Protocol):
    """A device whose memory exists as soon as it is asked for, and reaches jobs extent by extent.

    Jobs let go of an extent only when they are told, so memory that has been given back is free a little later, and
    until then there may be none to be had.  The daemon copies jobs' memory: they need not do anything.
    """

    def hear_bank_cuts(self, heard: Callable[[BankId], None]) -> None:
        """Call ``heard`` whenever a free bank gives way to something else, before its memory is given back."""
        ...

    def give_way(self) -> None:
        """Free banks give all their memory back."""
        ...

    def has_room(self, size: int) -> bool:
        """Whether the driver has so much memory at this moment, for the first request.  Blocks."""
        ...

    def make_weights(self, size: int) -> Extent:
        """New memory for the weights of a model, in one piece; the descriptor stays the device's.

        Raises DeviceError if it cannot be had.
        """
        ...

    def drop_weights(self, memory: Extent) -> None:
        """It is free as soon as no job maps it any more."""
        ...

    def adopt_weights(self, memory: Extent) -> None:
        """Take over what an earlier daemon has made.  Owns the descriptor.

        Raises DeviceError if it is something else; then the descriptor stays the caller's.
        """
        ...

    def pin_ahead(self, job: JobId, size: int) -> None:
        """The first ``size`` bytes of a job's store are likely to be copied to: have them ready, without waiting.

        Until `empty_store` or `drop_store` they may exist as if they had been copied to.
        """
        ...

    def copy_out(self, bank: BankId, ranges: Sequence[tuple[int, int]], job: JobId) -> Callable[[], None]:
        """What there is to do, in a thread, to copy bytes (begin, end) of a bank to the same place of the job's store.

        Bank and store may be closed meanwhile.  The call raises DeviceError; then what is at the target is undefined.
        So does this, if the bank is smaller.
        """
        ...

    def copy_in(self, bank: BankId, ranges: Sequence[tuple[int, int]], job: JobId) -> Callable[[], None]:
        """The way back; see `copy_out`."""
        ...

    def empty_store(self, job: JobId) -> Callable[[], None]:
        """What there is to do, in a thread, to give the memory of a job's store back.

        No copy from or to the store may be under way.
        """
        ...


def in_extents(device: DeviceBackend) -> TypeGuard[ExtentDevice]:
    """Whether a device's memory is made in extents, by a device agent (GPUs)."""
    return device.kind == "cuda"


def as_extents(device: DeviceBackend) -> ExtentDevice:
    """For what is done with such devices only: copies by the daemon, memory from the driver, suspended processes."""
    assert in_extents(device), f"{device.id} has no extents"
    return device
