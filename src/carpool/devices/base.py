"""The protocol of a device.  Every kind passes the contract suite in ``tests/devices/device_contract.py``.

A device's memory consists of *lanes*, which several jobs map, and *banks* (the recorded name of device buffers), which
jobs of one owner use one after another for persistent memory.  There is also one *store* in host memory per attached
job process, for its persistent memory while another job has the bank.  All are file descriptors; the daemon never
touches the bytes.
A store is one file; a lane or a bank is one (host), or any number of *extents*, which lie one after another: the offset
of the second is the size of the first.  The device only creates, sizes and counts: the core sets limits
(grants), so a device does not refuse what the core has decided.

Memory exists when it is made, or only when it is used: a lane or bank takes up to its size of the device.  Memory that
one call has added to a lane or bank can be given back by itself.

Sizes are bytes.  Descriptors returned by `lane_files`, `bank_files` and `store_fd` belong to the device; callers pass
them on (SCM_RIGHTS duplicates them) and never close them.

The protocol of devices whose memory exists from the first use of a page on: host devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

from carpool.core.model import DeviceId, JobId, LaneId

BankId = int  # never 0, never used twice on a device


class DeviceError(Exception):
    """The device cannot carry out a request; the text is for users."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A file of device memory."""

    fd: int
    size: int


def single(files: Sequence[Extent]) -> int:
    """Return the descriptor of a lane or bank that is one file.  Raises DeviceError for any other number of files."""
    if len(files) != 1:
        raise DeviceError(f"{len(files)} pieces of device memory where one file was expected")
    return files[0].fd


class DeviceBackend(Protocol):
    """One device.  No method blocks for longer than a system call, or than it takes to make and clear the memory."""

    @property
    def id(self) -> DeviceId:
        """The name of the device, as in "cuda0"."""

    @property
    def kind(self) -> str:
        """ "host" or "cuda"."""

    @property
    def uuid(self) -> str:
        """The driver's name of the device, by which jobs and NVML find the device; empty for host devices."""

    @property
    def model(self) -> str:
        """The maker's name of the model; empty for host devices."""

    @property
    def checkpoint(self) -> bool:
        """Whether the device's driver can suspend processes and resume them."""

    @property
    def capacity(self) -> int:
        """Bytes that lanes and banks may hold together."""

    @property
    def context(self) -> int:
        """Bytes that a process is expected to take by using the device at all, until some have been seen; 0: none."""

    @property
    def window(self) -> int:
        """Bytes of address space that an arena of a job needs at most: the capacity in whole GiB."""

    @property
    def spare(self) -> int:
        """Bytes for contexts beside the capacity, as far as known without measurements."""

    # Lanes

    def open_lane(self, lane: LaneId, size: int) -> None:
        """Create a lane.  Raises DeviceError if the memory cannot be had or the lane is already open."""

    def resize_lane(self, lane: LaneId, size: int) -> None:
        """Resize a lane; the first ``size`` bytes keep their content.  Jobs may not use bytes beyond the end of a lane.

        Extents are added or removed at the end, and those that stay are the same.  Raises DeviceError if the memory
        cannot be had; then nothing has changed.
        """

    def close_lane(self, lane: LaneId) -> None:
        """Close a lane; its memory is free once no job maps it any more.  Raises DeviceError for an unknown lane."""

    def lane_files(self, lane: LaneId) -> tuple[Extent, ...]:
        """Return the files of a lane, in order.  Raises DeviceError for an unknown lane."""

    def lane_size(self, lane: LaneId) -> int:
        """Return the size last asked for, rounded up to the unit in which the device can give memory back."""

    def adopt_lane(self, lane: LaneId, files: Sequence[Extent]) -> None:
        """Take over a lane of an earlier daemon, and own the descriptors; duplicates of known ones are closed."""

    # Banks

    def take_bank(self, owner: int, wanted: int, last: BankId | None) -> BankId:
        """Take a free bank of the owner for one job, until `free_bank`; a new bank if no free one is of use.

        Of banks that have most of the ``wanted`` bytes: the ``last`` one, which the job has mapped, else the smallest.
        The content is what the earlier job left.  A job that brings nothing (``wanted`` 0) gets an empty bank, so that
        pages stay for jobs that need pages.  Raises DeviceError if the memory cannot be had.
        """

    def grow_bank(self, bank: BankId, size: int) -> None:
        """Let the bank that a job holds have at least ``size`` bytes, unless memory exists from its first use on.

        Present memory keeps its content, and extents are added at the end.  Raises DeviceError if the memory cannot be
        had (then nothing has changed), and for an unknown bank.
        """

    def cut_bank(self, bank: BankId, size: int) -> None:
        """Give back memory of a bank whose job needs no more than ``size`` bytes; the first ones keep their content.

        Does nothing where jobs give memory back themselves.  Raises DeviceError for an unknown bank.
        """

    def free_bank(self, bank: BankId) -> None:
        """Free a bank; its pages stay, for the next job.  Nothing happens if the bank is free or unknown."""

    def bank_files(self, bank: BankId) -> tuple[Extent, ...]:
        """Return the files of a bank, in order.  Raises DeviceError for an unknown bank."""

    def bank_owner(self, bank: BankId) -> int:
        """Return the uid of a bank's owner.  Raises DeviceError for an unknown bank."""

    def close_banks(self, owner: int) -> None:
        """Close all banks of an owner who has no job on the device any more."""

    def adopt_bank(self, bank: BankId, owner: int, files: Sequence[Extent]) -> None:
        """Take over a bank of an earlier daemon, free, and own the descriptors; duplicates of known ones are closed."""

    def check_bank(self, bank: BankId, owner: int, files: Sequence[Extent]) -> None:
        """Check, before `adopt_bank`, that files can be that bank of that owner.  Raises DeviceError."""

    def hold_bank(self, bank: BankId) -> None:
        """Mark a bank as held: a job was found in it.  Raises DeviceError for an unknown bank."""

    def surplus(self, usable: int) -> Callable[[], None] | None:
        """Return a call, for a thread, that frees memory if lanes and banks have more than ``usable`` bytes of pages.

        The call empties a free bank, as far as necessary, the one with fewest pages first; no job gets that bank before
        the call has returned.  None: there is nothing to do.
        """

    # Stores

    def store_fd(self, job: JobId) -> int:
        """Return the store of a job's attached process (layout: ``src/native/abi/seat.h``), created once needed."""

    def drop_store(self, job: JobId) -> None:
        """Give a job's store back.  Nothing happens if the job has none."""

    def adopt_store(self, job: JobId, fd: int) -> None:
        """Take over a job's store of an earlier daemon, and own ``fd`` from now on."""

    def check_store(self, fd: int) -> None:
        """Check, before `adopt_store`, that ``fd`` can be a store.  Raises DeviceError."""

    def used_bytes(self) -> int:
        """Return the bytes of memory that exist behind lanes and banks at this moment."""

    def left_bytes(self, granted: Mapping[BankId, int]) -> int:
        """Return the bytes of `used_bytes` in banks beyond the grants of their holders: memory left by earlier jobs.

        Such memory is given back, or used, when it is needed.  ``granted``: of each bank that a job holds.
        """

    def stored_bytes(self) -> int:
        """Return the bytes of host memory that exist behind stores at this moment."""

    def close(self) -> None:
        """Close all descriptors; jobs that hold duplicates keep theirs."""


class ExtentDevice(DeviceBackend, Protocol):
    """A device whose memory exists as soon as it is asked for, and reaches jobs extent by extent.

    Jobs unmap an extent only when they are told, so memory that has been given back is free a little later, and until
    then requests for memory may fail.  The daemon copies jobs' memory; jobs need not do anything.
    """

    def hear_bank_cuts(self, heard: Callable[[BankId], None]) -> None:
        """Call ``heard`` whenever a free bank gives way to other memory, before the bank's memory is given back."""

    def give_way(self) -> None:
        """Let free banks give all their memory back."""

    def has_room(self, size: int) -> bool:
        """Whether the driver has ``size`` bytes at this moment, for whichever request comes first.  Blocks."""

    def make_weights(self, size: int) -> Extent:
        """Make memory for the weights of a model, in one piece; the descriptor stays the device's.

        Raises DeviceError if the memory cannot be had.
        """

    def drop_weights(self, memory: Extent) -> None:
        """Release memory of weights, which is free as soon as no job maps it any more."""

    def adopt_weights(self, memory: Extent) -> None:
        """Take over memory of weights that an earlier daemon has made, and own the descriptor.

        Raises DeviceError if it is other memory; then the descriptor stays the caller's.
        """

    def pin_ahead(self, job: JobId, size: int) -> None:
        """Pin the first ``size`` bytes of a job's store ahead of a likely copy, without waiting.

        Until `empty_store` or `drop_store`, these bytes may exist as if they had been copied to.
        """

    def copy_out(self, bank: BankId, ranges: Sequence[tuple[int, int]], job: JobId) -> Callable[[], None]:
        """Return a call, for a thread, that copies bytes (begin, end) of a bank to the same place of the job's store.

        Bank and store may be closed meanwhile.  The call raises DeviceError; then the target's content is undefined.
        Raises DeviceError itself if the bank is smaller.
        """

    def copy_in(self, bank: BankId, ranges: Sequence[tuple[int, int]], job: JobId) -> Callable[[], None]:
        """Return a call that copies from the store to the bank; see `copy_out`."""

    def empty_store(self, job: JobId) -> Callable[[], None]:
        """Return a call, for a thread, that gives the memory of a job's store back.

        No copy from or to the store may be under way.
        """


def in_extents(device: DeviceBackend) -> TypeGuard[ExtentDevice]:
    """Whether a device's memory is made in extents, by a device agent (GPUs)."""
    return device.kind == "cuda"


def as_extents(device: DeviceBackend) -> ExtentDevice:
    """Return a device with extents as such: for copies by the daemon, memory from the driver, suspended processes."""
    assert in_extents(device), f"{device.id} has no extents"
    return device


class WeightMemory(Protocol):
    """Banks of a device for weights: sparse files with the pages that earlier weights have left."""

    def take_for(self, owner: int, size: int) -> BankId:
        """Take a bank for weights of ``size`` bytes, until `free`.  Raises DeviceError if the memory cannot be had."""

    def hold_for(self, bank: BankId, size: int) -> None:
        """Mark a bank as held: weights were found in it.  Raises DeviceError for an unknown bank."""

    def free(self, bank: BankId) -> None:
        """Free a bank; its pages stay, for the next weights of the owner, until another job needs them."""

    def abandon(self, bank: BankId) -> None:
        """Never use the bank again: its memory is free when the processes that have it mapped have closed it."""

    def files(self, bank: BankId) -> Sequence[Extent]:
        """Return the one file of a bank.  Raises DeviceError for an unknown bank."""

    def check(self, bank: BankId, owner: int, files: Sequence[Extent]) -> None:
        """Check, before `adopt`, that files can be that bank of that owner.  Raises DeviceError."""

    def adopt(self, bank: BankId, owner: int, files: Sequence[Extent]) -> None:
        """Take over a bank of an earlier daemon, free, and own the descriptors; duplicates of known ones are closed."""

    def owner(self, bank: BankId) -> int:
        """Return the uid of a bank's owner.  Raises DeviceError for an unknown bank."""

    def owners(self) -> set[int]:
        """Return the owners of banks for weights."""

    def close(self, owner: int | None = None) -> None:
        """Close the banks of an owner none of whose processes computes with weights any more; None: of all owners."""


@dataclass(frozen=True, slots=True)
class Overuse:
    """The bytes of pages beyond those that jobs may have made, by number of lane and bank; others are left out."""

    lanes: Mapping[LaneId, int]
    banks: Mapping[BankId, int]
    weights: Mapping[BankId, int]


class PagedDevice(DeviceBackend, Protocol):
    """A device whose memory exists from the first use of a page on.

    Nothing stops a job at its limit, so existing pages are counted (`overuse`).
    """

    weights: WeightMemory

    def check_lane(self, fd: int) -> None:
        """Check, before `adopt_lane`, that ``fd`` can be a lane.  Raises DeviceError."""

    def overuse(self, granted: Mapping[BankId, int]) -> Overuse:
        """Return the overuse of lanes and banks.  ``granted``: bytes that the holder of each bank may use.

        Pages that a bank had when it was taken, or freed, may still be there.
        """

    def abandon_bank(self, bank: BankId) -> None:
        """Never use a free bank again: its memory is free when the owner's processes have unmapped it."""


def in_pages(device: DeviceBackend) -> TypeGuard[PagedDevice]:
    """Whether a device's memory exists from the first use of a page on (host devices)."""
    return device.kind == "host"
