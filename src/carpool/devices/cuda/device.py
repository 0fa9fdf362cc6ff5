"""The CUDA device: real memory of a GPU, made by its agent.

Memory exists as soon as it is asked for.  Every extent is cleared when it is made and belongs to one lane or bank, thus
to one owner, until it is given back to the driver; so no owner finds content of another.  The daemon only holds
descriptors: it has no context, and needs no driver in its own process.

Not yet run on a GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from carpool.core.model import GIB, DeviceId, JobId, LaneId
from carpool.devices.banks import BankedDevice, Banks
from carpool.devices.base import BankId, DeviceError, Extent
from carpool.devices.cuda import messages
from carpool.devices.cuda.agent_link import AgentLink
from carpool.devices.cuda.copies import Copying, StoreCopy, plan_copies
from carpool.devices.cuda.driver import DriverError
from carpool.devices.cuda.extents import Extents
from carpool.devices.host_stores import Stores

OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class GpuTraits:
    """The traits of a GPU, which `DeviceBackend` describes.  ``uuid``: its name for the driver and NVML."""

    uuid: str = ""
    model: str = ""
    checkpoint: bool = False
    context: int = 0
    spare: int = 0


NOT_KNOWN = GpuTraits()


class CudaDevice(BankedDevice):
    """Implements `carpool.devices.base.ExtentDevice`.  ``capacity``: bytes of its memory for lanes and banks."""

    kind = "cuda"

    def __init__(self, device: DeviceId, capacity: int, link: AgentLink, traits: GpuTraits = NOT_KNOWN) -> None:
        """Own the link.  The GPU is not used before memory is asked for."""
        window = -(-capacity // GIB) * GIB
        self._extents = Extents(link, capacity)
        banks = Banks(f"carpool-{device}-bank", self._extents)
        super().__init__(device, capacity, window, banks, Stores(device, window))
        self.uuid = traits.uuid
        self.checkpoint = traits.checkpoint
        self.model = traits.model
        self.context = traits.context
        self.spare = traits.spare
        self._link = link
        self._lanes: dict[LaneId, list[Extent]] = {}
        self._weights: list[Extent] = []
        self._store_numbers: dict[JobId, int] = {}  # the agent's numbers of stores that it may have pinned
        self._numbers = itertools.count(1)

    def hear_bank_cuts(self, heard: Callable[[BankId], None]) -> None:
        """See `ExtentDevice`."""
        self._banks.hear_cuts(heard)

    # Lanes

    def open_lane(self, lane: LaneId, size: int) -> None:
        """See `DeviceBackend`."""
        if lane in self._lanes:
            raise DeviceError(f"lane {lane} of {self.id} is already open")
        files: list[Extent] = []
        self._grow(files, size)
        self._lanes[lane] = files

    def resize_lane(self, lane: LaneId, size: int) -> None:
        """See `DeviceBackend`."""
        files = self._lane(lane)
        gone = self._extents.cut_off(files, self._whole(size))
        self._release(gone)
        if not gone:
            self._grow(files, size)

    def close_lane(self, lane: LaneId) -> None:
        """See `DeviceBackend`."""
        files = self._lane(lane)
        del self._lanes[lane]
        self._release(files)

    def lane_files(self, lane: LaneId) -> tuple[Extent, ...]:
        """See `DeviceBackend`."""
        return tuple(self._lane(lane))

    def lane_size(self, lane: LaneId) -> int:
        """See `DeviceBackend`."""
        return self._extents.used(self._lane(lane))

    def adopt_lane(self, lane: LaneId, files: Sequence[Extent]) -> None:
        """See `DeviceBackend`."""
        self._extents.adopt(self._lanes.setdefault(lane, []), files)

    # Banks

    def grow_bank(self, bank: BankId, size: int) -> None:
        """See `DeviceBackend`."""
        self._grow(self._banks.files(bank), size)

    def cut_bank(self, bank: BankId, size: int) -> None:
        """Release the whole extents of the bank beyond ``size`` bytes."""
        self._release(self._extents.cut_off(self._banks.files(bank), self._whole(size)))

    def close_banks(self, owner: int) -> None:
        """See `DeviceBackend`."""
        super().close_banks(owner)
        self._rest()

    def give_way(self) -> None:
        """See `ExtentDevice`."""
        while (work := self._banks.emptying(self.capacity)) is not None:
            work()
        self._rest()

    def has_room(self, size: int) -> bool:
        """See `ExtentDevice`."""
        try:
            self._link.ask(messages.Room(self._whole(size)))
        except DriverError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            return False
        self._rest()
        return True

    # Weights

    def make_weights(self, size: int) -> Extent:
        """See `ExtentDevice`."""
        size = self._whole(size)
        self._weights.append(self._insist(lambda: self._extents.make(size), size))
        return self._weights[-1]

    def drop_weights(self, memory: Extent) -> None:
        """See `ExtentDevice`."""
        self._weights.remove(memory)
        self._release([memory])

    def adopt_weights(self, memory: Extent) -> None:
        """See `ExtentDevice`."""
        self._extents.check([memory], None)
        self._weights.append(self._extents.add(memory))

    # Stores

    def drop_store(self, job: JobId) -> None:
        """See `DeviceBackend`; the agent unpins it."""
        self._unpin(job)
        super().drop_store(job)
        self._rest()

    def adopt_store(self, job: JobId, fd: int) -> None:
        """See `DeviceBackend`."""
        self._unpin(job)
        super().adopt_store(job, fd)

    def empty_store(self, job: JobId) -> Callable[[], None]:
        """See `ExtentDevice`."""
        self._unpin(job)
        work = self._stores.emptying(job)
        return lambda: self._empty(work)

    def pin_ahead(self, job: JobId, size: int) -> None:
        """See `ExtentDevice`."""
        self._link.tell(messages.PinAhead(self._number(job), size), [self._stores.fd(job)])

    def copy_out(self, bank: BankId, ranges: Sequence[tuple[int, int]], job: JobId) -> Callable[[], None]:
        """See `ExtentDevice`; the store's pages are pinned for the copy, and stay pinned."""
        return self._copying(bank, ranges, job, out=True).run

    def copy_in(self, bank: BankId, ranges: Sequence[tuple[int, int]], job: JobId) -> Callable[[], None]:
        """See `ExtentDevice`."""
        return self._copying(bank, ranges, job, out=False).run

    def used_bytes(self) -> int:
        """Return the bytes of all extents of this device, without extents given back that jobs still map."""
        return self._extents.total

    def close(self) -> None:
        """Close all descriptors, and end the agent."""
        for lane in tuple(self._lanes):
            self.close_lane(lane)
        for memory in tuple(self._weights):
            self.drop_weights(memory)
        self._banks.close()
        self._stores.close()
        self._link.close()

    def _lane(self, lane: LaneId) -> list[Extent]:
        try:
            return self._lanes[lane]
        except KeyError:
            raise DeviceError(f"{self.id} has no lane {lane}") from None

    def _whole(self, size: int) -> int:
        unit = self._link.ready().granularity
        return -(-size // unit) * unit

    def _grow(self, files: list[Extent], size: int) -> None:
        size = self._whole(size)
        self._insist(lambda: self._extents.grow(files, size), size - self._extents.used(files))

    def _insist(self, make: Callable[[], Made], missing: int) -> Made:
        """Make memory; let free banks give way as far as necessary, whose memory may be free only a little later."""
        while True:
            try:
                return make()
            except DriverError as error:
                before = self._extents.total
                work = self._banks.emptying(missing) if error.code == OUT_OF_MEMORY and missing > 0 else None
                if work is None:
                    raise
                work()
                missing -= before - self._extents.total

    def _release(self, files: Sequence[Extent]) -> None:
        self._extents.release(files)
        self._rest()

    def _rest(self) -> None:
        """Let the agent of an idle device give its memory back, even that of its context."""
        if not self._extents.total and not self._store_numbers:
            self._link.tell(messages.Rest())

    def _copying(self, bank: BankId, ranges: Sequence[tuple[int, int]], job: JobId, *, out: bool) -> Copying:
        store = self._stores.fd(job)
        plan = plan_copies(self._banks.files(bank), ranges)
        return Copying(self._link, self._extents, plan, StoreCopy(self._number(job), store, out), self._forget_store)

    def _number(self, job: JobId) -> int:
        """Return the agent's number of a job's store."""
        return self._store_numbers.setdefault(job, next(self._numbers))

    def _unpin(self, job: JobId) -> None:
        number = self._store_numbers.pop(job, None)
        if number is not None:
            self._link.tell(messages.Forget(stores=[number]))

    def _empty(self, work: Callable[[], None]) -> None:
        """Empty a store after the agent has stopped pinning it, because pinning makes pages."""
        with suppress(DeviceError):
            self._link.ask(messages.Hear())
        work()
        self._rest()

    def _forget_store(self, number: int) -> None:
        """Let the agent forget a dropped store, to which the agent may have copied until now."""
        if number not in list(self._store_numbers.values()):  # called in the thread
            self._link.tell(messages.Forget(stores=[number]))
