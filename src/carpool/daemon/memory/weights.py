"""The memory of services' weights: one file per device, owner and key, mapped by every worker of the owner there.

On a host device the weights lie in that file, which is a bank of the device: when they are dropped, the owner's next
weights get it, and its pages.  Where memory comes in extents, the file's first bytes only say what is there
(``native/weights/groups.h``), and the weights lie in an extent of their own, which goes when they are dropped.

Workers' shims keep duplicates, so weights outlive the daemon, and the worker that has brought them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from carpool.core.commands import DropWeights, PlaceWeights
from carpool.core.model import Demand, DeviceId, JobId
from carpool.daemon.jobs.held import Held
from carpool.daemon.jobs.table import JobRecord, JobTable, Seated
from carpool.daemon.seats.allocator import Seating
from carpool.daemon.seats.demands import answer_demand, computes_with, demand_in
from carpool.daemon.seats.kept_fds import free_bank_name, weights_extent_name, weights_key_of, weights_name
from carpool.daemon.seats.memory_freed import MemoryFreed
from carpool.daemon.system.clock import wall_us
from carpool.devices import memfd
from carpool.devices.base import BankId, DeviceError, Extent, ExtentDevice, in_extents
from carpool.devices.paged import PagedDevice, in_pages
from carpool.protocol.seat import Packet, PacketType, Placed

#: Of the header, whose first bytes say that it is one (``native/weights/groups.h``).
HEADER = bytes(memfd.PAGE)
#: What packets name: the file, the extent; and weights where lanes and banks have their class.
_FILE, _EXTENT = 0, 1
_CUT_WEIGHTS = 2
Key = tuple[DeviceId, int, str]  # device, owner, key of the weights


def _header(name: Key, demand: Demand) -> File:
    fd = memfd.create(f"carpool-{name[0]}-weights", demand.size, sealed=True)
    return File(weights_name(name[0], demand), fd, demand.size, demand.reload_us)


@dataclass(slots=True)
class File:
    """The memory of one set of weights on a device: its file, the bank or the extent in which they lie."""

    name: str  # under which shims keep it
    fd: int
    size: int
    reload_us: int
    bank: BankId | None = None  # whose descriptor it is; None: our own
    extent: Extent | None = None
    number: int = 0  # larger for what came later: of the extent, or of the weights in their bank

    def extent_name(self, key: Key) -> str:
        assert self.extent is not None
        return weights_extent_name(key[0], key[2], self.number, self.extent.size)


class WeightFiles:
    """``table``: what is there, or its header; `carpool.daemon.memory.weights_adoption` fills it after a restart."""

    def __init__(
        self,
        jobs: JobTable,
        seating: Seating,
        send: Callable[[JobId, Packet, Sequence[Held]], None],
        freed: MemoryFreed,
    ) -> None:
        self._jobs = jobs
        self._seating = seating
        self._send = send
        freed.listen(self.tidy)
        self.table: dict[Key, File] = {}
        self._due: dict[JobId, Key] = {}  # what jobs have been promised, and not been told
        self._latest = 0  # number

    def place(self, job: JobRecord, command: PlaceWeights) -> None:
        """Answer the job's demand, now or later: it may map the memory, and copy."""
        self._due[job.id] = command.device, command.owner, command.key
        self.obstacle(job)

    def obstacle(self, job: JobRecord) -> str | None:
        """Why its demand, if it has one, cannot be answered yet."""
        name = self._due.get(job.id)
        if name is None or job.seated is None or job.spec.service is None:
            self._due.pop(job.id, None)
            return None
        words = job.seated.seat.snapshot()
        demand = demand_in(words)
        if demand is None or demand.weights != name[2]:  # its process has been followed by another one
            del self._due[job.id]
            return None
        try:
            file = self._file(name, demand)
        except (DeviceError, OSError) as error:
            return str(error)
        del self._due[job.id]
        self._answer(job, job.seated, file, name, words.demand_seq)
        return None

    def _file(self, name: Key, demand: Demand) -> File:
        file = self.table.get(name)
        if file is not None and file.size != demand.size:
            self._close(name)
            file = None
        device = self._seating.devices[name[0]]
        if file is None:
            file = self.table[name] = self._in_bank(device, name, demand) if in_pages(device) else _header(name, demand)
        extents = self.device_in_extents(name)
        if extents is not None and file.extent is None:
            file.extent = extents.make_weights(demand.size)
            file.number = max(file.number + 1, wall_us())  # workers may still have one that no shim keeps any more
        return file

    def _in_bank(self, device: PagedDevice, name: Key, demand: Demand) -> File:
        bank, number = device.weights.take_for(name[1], demand.size), self._next_number()
        fd = device.weights.files(bank)[0].fd
        try:
            os.pwrite(fd, HEADER, 0)  # of what has been there before only some pages may be left
        except OSError:
            device.weights.free(bank)
            raise
        return File(weights_name(name[0], demand, bank, number), fd, demand.size, demand.reload_us, bank, number=number)

    def count_from(self, number: int) -> None:
        """A shim keeps weights of this number: what is made from now on has a larger one."""
        self._latest = max(self._latest, number)

    def _next_number(self) -> int:
        self._latest = max(self._latest + 1, wall_us())
        return self._latest

    def _answer(self, job: JobRecord, seated: Seated, file: File, name: Key, number: int) -> None:
        """What it has not been sent yet, then the answer."""
        key = int(name[2], 16)
        self._give(job, file.name, Held(name[1], file.fd), Packet(PacketType.WEIGHTS, a=key, b=file.size, c=_FILE))
        if file.bank is not None:
            self._forget_free(name[0], file.bank)
        if file.extent is not None:
            packet = Packet(PacketType.WEIGHTS, a=key, b=file.extent.size, c=_EXTENT, d=file.number)
            self._give(job, file.extent_name(name), Held(name[1], file.extent.fd), packet)
        answer_demand(seated, Placed.YES, number)

    def _give(self, job: JobRecord, name: str, memory: Held, packet: Packet) -> None:
        """The shim keeps it first: what is there outlives us from the moment on when the worker may write."""
        assert job.seated is not None
        if name not in job.weights:
            job.weights.add(name)
            self._seating.shims.keep(job.id, {name: memory}, job.seated.pid)
        if name not in job.weights_sent:
            job.weights_sent.add(name)
            self._send(job.id, packet, [memory])

    def drop(self, command: DropWeights) -> None:
        """Nobody computes with them, or will before they have been placed again."""
        name = command.device, command.owner, command.key
        file = self.table.get(name)
        if file is None:
            return
        if file.bank is not None:
            self._close(name)
            self.tidy()
            return
        os.pwrite(file.fd, HEADER, 0)
        if file.extent is not None:
            self._drop_extent(name, file)

    def device_in_extents(self, name: Key) -> ExtentDevice | None:
        device = self._seating.devices[name[0]]
        return device if in_extents(device) else None

    def _drop_extent(self, name: Key, file: File) -> None:
        """Its memory is free when all workers have let go of it."""
        device = self.device_in_extents(name)
        assert device is not None and file.extent is not None
        kept, file_extent, file.extent = file.extent_name(name), file.extent, None
        self.take_back(name[1], kept)
        device.drop_weights(file_extent)

    def take_back(self, owner: int, kept: str, instead: dict[str, Held] | None = None) -> None:
        """From whatever workers have it.  ``instead``: what their shims keep from now on."""
        for job in self._jobs.live.values():
            if job.owner == owner and kept in job.weights:
                if instead and job.seated is not None:  # first: we may be killed in between
                    job.weights |= set(instead)
                    self._seating.shims.keep(job.id, instead, job.seated.pid)
                self.let_go(job, [kept])
                self._send(job.id, Packet(PacketType.CUT, a=int(weights_key_of(kept), 16), b=_CUT_WEIGHTS), [])
                if job.seated is not None:
                    job.seated.board.notify(job.seated.seat)

    def let_go(self, job: JobRecord, names: list[str]) -> None:
        job.weights -= set(names)
        job.weights_sent -= set(names)
        self._seating.shims.drop(job.id, names)

    def _forget_free(self, device: DeviceId, bank: BankId) -> None:
        """There are weights in it again."""
        name = free_bank_name(device, bank)
        for job in self._jobs.live.values():
            if name in job.weights:
                self.let_go(job, [name])

    def tidy(self) -> None:
        """Close what nobody has mapped and nothing is in."""
        used = {name for job in self._jobs.live.values() for name in job.weights}
        for key, file in tuple(self.table.items()):
            if file.name not in used and file.bank is None and file.extent is None:
                self._close(key)
        here = {(job.device, job.owner) for job in self._jobs.live.values() if job.seated and job.spec.service}
        here |= {key[:2] for key in self.table}
        for device in self._seating.devices.values():
            if in_pages(device):
                for owner in device.weights.owners():
                    if (device.id, owner) not in here:
                        device.weights.close(owner)

    def _leave_bank(self, device: PagedDevice, key: Key, file: File, bank: BankId) -> None:
        """A worker that was promised them by an earlier daemon, or before a job got the device, may still copy."""
        if any(
            job.owner == key[1] and job.device == key[0] and computes_with(job, key[2])
            for job in self._jobs.live.values()
        ):
            device.weights.abandon(bank)
            self.take_back(key[1], file.name)
            return
        os.pwrite(file.fd, HEADER, 0)
        device.weights.free(bank)
        self.take_back(key[1], file.name, {free_bank_name(key[0], bank): Held(key[1], file.fd)})

    def _close(self, key: Key) -> None:
        file = self.table[key]
        if file.extent is not None:
            self._drop_extent(key, file)
        del self.table[key]
        device = self._seating.devices[key[0]]
        if in_pages(device) and file.bank is not None:
            self._leave_bank(device, key, file, file.bank)
            return
        os.close(file.fd)
        for job in self._jobs.live.values():
            if file.name in job.weights and job.owner == key[1]:
                self.let_go(job, [file.name])
