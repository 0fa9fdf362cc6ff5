"""The memory of services' weights: one file per device, owner and key, mapped by every worker of the owner there.

On a host device the weights lie in that file, which is a bank of the device: when they are dropped, the owner's next
weights get the bank with its pages.  Where memory comes in extents, the file's first bytes only describe what is there
(``src/native/weights/groups.h``), and the weights lie in an extent of their own, which is freed when they are dropped.

Workers' shims keep duplicates, so weights outlive the daemon, and the worker that has loaded them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from carpool.core.commands import DropWeights, PlaceWeights
from carpool.core.model import Demand, DeviceId, JobId
from carpool.daemon.jobs.seat_table import OwnedFd
from carpool.daemon.jobs.table import JobRecord, JobTable, Seated
from carpool.daemon.seats.allocator import MemoryFreed, SeatAllocator
from carpool.daemon.seats.kept_fds import free_bank_name, weights_extent_name, weights_key_of, weights_name
from carpool.daemon.seats.services import answer_demand, computes_with, demand_in
from carpool.daemon.system.clock import wall_us
from carpool.devices import memfd
from carpool.devices.base import BankId, DeviceError, Extent, ExtentDevice, PagedDevice, in_extents, in_pages
from carpool.protocol.seat import Packet, PacketType, Placed

#: An empty header page; the first bytes of a header in use say that it is one (``src/native/weights/groups.h``).
HEADER = bytes(memfd.PAGE)
#: What WEIGHTS packets name: the file, the extent; and the number for weights in the class field of CUT packets.
_FILE, _EXTENT = 0, 1
_CUT_WEIGHTS = 2
Key = tuple[DeviceId, int, str]  # device, owner, key of the weights


def _header(name: Key, demand: Demand) -> File:
    fd = memfd.create(f"carpool-{name[0]}-weights", demand.size, sealed=True)
    return File(weights_name(name[0], demand), fd, demand.size, demand.reload_us)


@dataclass(slots=True)
class File:
    """The memory of one set of weights on a device: its file, and the bank or the extent in which they lie."""

    name: str  # the name under which shims keep it
    fd: int
    size: int
    reload_us: int
    bank: BankId | None = None  # the bank that owns the descriptor; None: the daemon owns it
    extent: Extent | None = None
    number: int = 0  # number of the extent, or of the weights in their bank; later ones are larger

    def extent_name(self, key: Key) -> str:
        """Return the name under which shims keep the extent."""
        assert self.extent is not None
        return weights_extent_name(key[0], key[2], self.number, self.extent.size)


class WeightFiles:
    """``table``: weights, or their headers; `carpool.daemon.memory.weights_adoption` fills it after a restart."""

    def __init__(
        self,
        jobs: JobTable,
        seating: SeatAllocator,
        send: Callable[[JobId, Packet, Sequence[OwnedFd]], None],
        freed: MemoryFreed,
    ) -> None:
        self._jobs = jobs
        self._seating = seating
        self._send = send
        freed.listen(self.tidy)
        self.table: dict[Key, File] = {}
        self._due: dict[JobId, Key] = {}  # weights that the core has placed for jobs that have not been answered
        self._latest = 0  # the latest number

    def place(self, job: JobRecord, command: PlaceWeights) -> None:
        """Answer the job's demand, now or later: the job may map the memory, and copy."""
        self._due[job.id] = command.device, command.owner, command.key
        self.obstacle(job)

    def obstacle(self, job: JobRecord) -> str | None:
        """Explain why the job's demand, if it has one, cannot be answered yet; None: it can."""
        name = self._due.get(job.id)
        if name is None or job.seated is None or job.spec.service is None:
            self._due.pop(job.id, None)
            return None
        words = job.seated.seat.snapshot()
        demand = demand_in(words)
        if demand is None or demand.weights != name[2]:  # another process has taken the place of the job's
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
            file.number = max(file.number + 1, wall_us())  # workers may still have an extent that no shim keeps
        return file

    def _in_bank(self, device: PagedDevice, name: Key, demand: Demand) -> File:
        bank, number = device.weights.take_for(name[1], demand.size), self._next_number()
        fd = device.weights.files(bank)[0].fd
        try:
            os.pwrite(fd, HEADER, 0)  # of the earlier content only some pages may be left
        except OSError:
            device.weights.free(bank)
            raise
        return File(weights_name(name[0], demand, bank, number), fd, demand.size, demand.reload_us, bank, number=number)

    def count_from(self, number: int) -> None:
        """Give later weights numbers above ``number``, which a shim keeps."""
        self._latest = max(self._latest, number)

    def _next_number(self) -> int:
        self._latest = max(self._latest + 1, wall_us())
        return self._latest

    def _answer(self, job: JobRecord, seated: Seated, file: File, name: Key, number: int) -> None:
        """Send the job what it has not been sent yet, then the answer."""
        key = int(name[2], 16)
        self._give(job, file.name, OwnedFd(name[1], file.fd), Packet(PacketType.WEIGHTS, a=key, b=file.size, c=_FILE))
        if file.bank is not None:
            self._forget_free(name[0], file.bank)
        if file.extent is not None:
            packet = Packet(PacketType.WEIGHTS, a=key, b=file.extent.size, c=_EXTENT, d=file.number)
            self._give(job, file.extent_name(name), OwnedFd(name[1], file.extent.fd), packet)
        answer_demand(seated, Placed.YES, number)

    def _give(self, job: JobRecord, name: str, memory: OwnedFd, packet: Packet) -> None:
        """Let the shim keep the memory first: once the worker may write to it, it has to outlive the daemon."""
        if name not in job.weights:
            job.weights.add(name)
            self._seating.shims.keep(job.id, {name: memory}, job.attached.pid)
        if name not in job.weights_sent:
            job.weights_sent.add(name)
            self._send(job.id, packet, [memory])

    def drop(self, command: DropWeights) -> None:
        """Drop weights with which no job computes, or will before they have been placed again."""
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
        """Return the device of the weights if its memory comes in extents."""
        device = self._seating.devices[name[0]]
        return device if in_extents(device) else None

    def _drop_extent(self, name: Key, file: File) -> None:
        """Drop the extent; its memory is free when all workers have released it."""
        device = self.device_in_extents(name)
        assert device is not None and file.extent is not None
        kept, file_extent, file.extent = file.extent_name(name), file.extent, None
        self.take_back(name[1], kept)
        device.drop_weights(file_extent)

    def take_back(self, owner: int, kept: str, instead: dict[str, OwnedFd] | None = None) -> None:
        """Take memory of weights back from all workers.  ``instead``: what their shims keep from now on."""
        for job in self._jobs.live.values():
            if job.owner == owner and kept in job.weights:
                if instead and job.seated is not None:  # first: the daemon may be killed in between
                    job.weights |= set(instead)
                    self._seating.shims.keep(job.id, instead, job.seated.pid)
                self.let_go(job, [kept])
                self._send(job.id, Packet(PacketType.CUT, a=int(weights_key_of(kept), 16), b=_CUT_WEIGHTS), [])
                if job.seated is not None:
                    job.seated.notify()

    def let_go(self, job: JobRecord, names: list[str]) -> None:
        """Let the job's shim close what it keeps under these names."""
        job.weights -= set(names)
        job.weights_sent -= set(names)
        self._seating.shims.drop(job.id, names)

    def _forget_free(self, device: DeviceId, bank: BankId) -> None:
        """Forget that a bank was free: it has weights again."""
        name = free_bank_name(device, bank)
        for job in self._jobs.live.values():
            if name in job.weights:
                self.let_go(job, [name])

    def tidy(self) -> None:
        """Close files that no job has mapped and that hold no weights."""
        used = {name for job in self._jobs.live.values() for name in job.weights}
        for key, file in tuple(self.table.items()):
            if file.name not in used and file.bank is None and file.extent is None:
                self._close(key)
        self._close_unused_banks()

    def _close_unused_banks(self) -> None:
        here = {(job.device, job.owner) for job in self._jobs.live.values() if job.seated and job.spec.service}
        here |= {key[:2] for key in self.table}
        for device in self._seating.devices.values():
            if in_pages(device):
                for owner in device.weights.owners():
                    if (device.id, owner) not in here:
                        device.weights.close(owner)

    def _leave_bank(self, device: PagedDevice, key: Key, file: File, bank: BankId) -> None:
        """Leave a bank; abandon it if a worker may still copy into it.

        That is a worker that was promised the weights by an earlier daemon, or before a job got the device.
        """
        if any(
            job.owner == key[1] and job.device == key[0] and computes_with(job, key[2])
            for job in self._jobs.live.values()
        ):
            device.weights.abandon(bank)
            self.take_back(key[1], file.name)
            return
        os.pwrite(file.fd, HEADER, 0)
        device.weights.free(bank)
        self.take_back(key[1], file.name, {free_bank_name(key[0], bank): OwnedFd(key[1], file.fd)})

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
