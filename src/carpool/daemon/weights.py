"""The memory of services' weights: one file per device, owner and key, mapped by every worker of the owner there.

On a host device the weights lie in that file, which is a bank of the device: when they are dropped, the owner's next
weights get it, and its pages.  Where memory comes in extents, the file's first bytes only say what is there
(``native/groups.h``), and the weights lie in an extent of their own, which goes when they are dropped.

Workers' shims keep duplicates, so weights outlive the daemon, and the worker that has brought them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from carpool.core.commands import DropWeights, PlaceWeights
from carpool.core.events import WeightsFound
from carpool.core.model import Demand, DeviceId, JobId
from carpool.daemon.clock import wall_us
from carpool.daemon.demands import answer_demand, demand_of
from carpool.daemon.jobs import Job, JobTable
from carpool.daemon.keepsakes import (
    is_weights_extent,
    weights_extent_name,
    weights_extent_of,
    weights_key_of,
    weights_name,
    weights_of,
)
from carpool.daemon.seating import Seating
from carpool.devices import memfd
from carpool.devices.base import BankId, DeviceError, Extent, ExtentDevice, PagedDevice, in_extents, in_pages
from carpool.protocol.seat import Packet, PacketType, Placed

#: Of the header, whose first bytes say that it is one (``native/groups.h``).
HEADER = bytes(memfd.PAGE)
#: What packets name: the file, the extent; and weights where lanes and banks have their class.
_FILE, _EXTENT = 0, 1
_CUT_WEIGHTS = 2
Key = tuple[DeviceId, int, str]  # device, owner, key of the weights


def _header(name: Key, demand: Demand) -> _File:
    fd = memfd.create(f"carpool-{name[0]}-weights", demand.size, sealed=True)
    return _File(weights_name(name[0], demand), fd, demand.size, demand.reload_us)


@dataclass(slots=True)
class _File:
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
    def __init__(self, jobs: JobTable, seating: Seating, send: Callable[[JobId, Packet, list[int]], None]) -> None:
        self._jobs = jobs
        self._seating = seating
        self._send = send
        self._files: dict[Key, _File] = {}
        self._due: dict[JobId, Key] = {}  # what jobs have been promised, and not been told
        self._latest = 0  # number
        self._owners: set[tuple[DeviceId, int]] = set()  # who has banks for weights

    def place(self, job: Job, command: PlaceWeights) -> None:
        """Answer the job's demand, now or later: it may map the memory, and copy."""
        self._due[job.id] = command.device, command.owner, command.key
        self.obstacle(job)

    def obstacle(self, job: Job) -> str | None:
        """Why its demand, if it has one, cannot be answered yet."""
        name = self._due.get(job.id)
        demand = demand_of(job)
        if name is None or demand is None or demand.weights != name[2]:  # its process has been followed by another one
            self._due.pop(job.id, None)
            return None
        try:
            file = self._file(name, demand)
        except (DeviceError, OSError) as error:
            return str(error)
        del self._due[job.id]
        self._answer(job, file, name)
        return None

    def _file(self, name: Key, demand: Demand) -> _File:
        file = self._files.get(name)
        if file is not None and file.size != demand.size:
            self._close(name)
            file = None
        device = self._seating.devices[name[0]]
        if file is None:
            file = self._files[name] = (
                self._in_bank(device, name, demand) if in_pages(device) else _header(name, demand)
            )
        if in_extents(device) and file.extent is None:
            file.extent = device.make_weights(demand.size)
            file.number = max(file.number + 1, wall_us())  # workers may still have one that no shim keeps any more
        return file

    def _in_bank(self, device: PagedDevice, name: Key, demand: Demand) -> _File:
        bank, number = device.weights.take_for(name[1], demand.size), self._next_number()
        self._owners.add(name[:2])
        fd = device.weights.files(bank)[0].fd
        os.pwrite(fd, HEADER, 0)  # of what has been there before only some pages may be left
        return _File(
            weights_name(name[0], demand, bank, number), fd, demand.size, demand.reload_us, bank, number=number
        )

    def _next_number(self) -> int:
        self._latest = max(self._latest + 1, wall_us())
        return self._latest

    def _answer(self, job: Job, file: _File, name: Key) -> None:
        """What it has not been sent yet, then the answer."""
        key = int(name[2], 16)
        self._give(job, file.name, file.fd, Packet(PacketType.WEIGHTS, a=key, b=file.size, c=_FILE))
        if file.extent is not None:
            packet = Packet(PacketType.WEIGHTS, a=key, b=file.extent.size, c=_EXTENT, d=file.number)
            self._give(job, file.extent_name(name), file.extent.fd, packet)
        answer_demand(job, Placed.YES)

    def _give(self, job: Job, name: str, fd: int, packet: Packet) -> None:
        """The shim keeps it first: what is there outlives us from the moment on when the worker may write."""
        assert job.seated is not None
        if name not in job.weights:
            job.weights.add(name)
            self._seating.keep(job.id, {name: fd}, job.seated.pid)
        if name not in job.weights_sent:
            job.weights_sent.add(name)
            self._send(job.id, packet, [fd])

    def drop(self, command: DropWeights) -> None:
        """Nobody computes with them, or will before they have been placed again."""
        name = command.device, command.owner, command.key
        file = self._files.get(name)
        if file is None:
            return
        os.pwrite(file.fd, HEADER, 0)
        if file.extent is not None:
            self._drop_extent(name, file)
        elif file.bank is not None:
            self._close(name)
            self.tidy()

    def _device_in_extents(self, name: Key) -> ExtentDevice | None:
        device = self._seating.devices[name[0]]
        return device if in_extents(device) else None

    def _drop_extent(self, name: Key, file: _File) -> None:
        """Its memory is free when all workers have let go of it."""
        device = self._device_in_extents(name)
        assert device is not None and file.extent is not None
        kept, file_extent, file.extent = file.extent_name(name), file.extent, None
        self._take_back(name[1], kept)
        device.drop_weights(file_extent)

    def _take_back(self, owner: int, kept: str) -> None:
        """From whatever workers have it."""
        for job in self._jobs.live.values():
            if job.owner == owner and kept in job.weights:
                self._let_go(job, [kept])
                self._send(job.id, Packet(PacketType.CUT, a=int(weights_key_of(kept), 16), b=_CUT_WEIGHTS), [])
                if job.seated is not None:
                    job.seated.board.ring(job.seated.seat)

    def _let_go(self, job: Job, names: list[str]) -> None:
        job.weights -= set(names)
        job.weights_sent -= set(names)
        self._seating.drop(job.id, names)

    def tidy(self) -> None:
        """Close what nobody has mapped and nothing is in."""
        used = {name for job in self._jobs.live.values() for name in job.weights}
        for key, file in tuple(self._files.items()):
            if file.name not in used and file.bank is None and file.extent is None:
                self._close(key)
        here = {(job.device, job.owner) for job in self._jobs.live.values() if job.seated and job.spec.service}
        here |= {key[:2] for key in self._files}
        for device_id, owner in self._owners - here:
            device = self._seating.devices[device_id]
            assert in_pages(device)
            device.weights.close(owner)
        self._owners &= here

    def _close(self, key: Key) -> None:
        file = self._files[key]
        if file.extent is not None:
            self._drop_extent(key, file)
        del self._files[key]
        device = self._seating.devices[key[0]]
        if in_pages(device) and file.bank is not None:
            device.weights.free(file.bank)
            self._take_back(key[1], file.name)
            return
        os.close(file.fd)
        for job in self._jobs.live.values():
            if file.name in job.weights and job.owner == key[1]:
                self._let_go(job, [file.name])

    # After a restart

    def adopt(self, job: Job, name: str, fd: int) -> None:
        """What a shim has kept, files before extents.  Owns the descriptor, unless it raises ValueError."""
        if is_weights_extent(name):
            self._adopt_extent(job, name, fd)
            return
        device_id, demand, bank, number = weights_of(name)
        key = device_id, job.owner, demand.weights
        device = self._seating.devices.get(device_id)
        if device is None:
            raise ValueError(f"{name} is memory of a device that is not shared any more")
        if in_pages(device):
            self._adopt_bank(device, key, _File(name, fd, demand.size, demand.reload_us, bank, number=number))
        else:
            self._adopt_header(key, _File(name, fd, demand.size, demand.reload_us))
        job.weights.add(name)

    def _adopt_header(self, key: Key, file: _File) -> None:
        known = self._files.get(key)
        if not memfd.is_sealed(file.fd, file.size):
            raise ValueError(f"{file.name} is not the memory of weights")
        if known is None:
            self._files[key] = file
        elif os.fstat(known.fd).st_ino == os.fstat(file.fd).st_ino:
            os.close(file.fd)
        else:
            raise ValueError(f"{file.name} is another file than that of other workers")

    def _adopt_bank(self, device: PagedDevice, key: Key, file: _File) -> None:
        """What was there earlier, in this bank or of these weights in another one, is there no more."""
        assert file.bank is not None
        memory = [Extent(file.fd, file.size)]
        try:
            device.weights.check(file.bank, key[1], memory)
        except DeviceError as error:
            raise ValueError(f"{file.name} is not the memory of weights: {error}") from None
        device.weights.adopt(file.bank, key[1], memory)
        self._owners.add(key[:2])
        file.fd = device.weights.files(file.bank)[0].fd
        rivals = [
            other
            for other, known in self._files.items()
            if other == key or (other[0] == key[0] and known.bank == file.bank)
        ]
        if all(self._files[other].number < file.number for other in rivals):
            for other in rivals:
                del self._files[other]
            self._files[key] = file
        self._latest = max(self._latest, file.number)

    def _adopt_extent(self, job: Job, name: str, fd: int) -> None:
        """The latest one counts.  Whoever has an earlier one has not computed with it since."""
        device_id, weights, number, size = weights_extent_of(name)
        key = device_id, job.owner, weights
        device, file = self._device_in_extents(key), self._files.get(key)
        if device is None or file is None:
            raise ValueError(f"{name} belongs to no weights")
        if number <= file.number:
            os.close(fd)
        else:
            extent = Extent(fd, size)
            try:
                device.adopt_weights(extent)
            except DeviceError as error:
                raise ValueError(f"{name} is not memory of {device_id}: {error}") from None
            if file.extent is not None:
                device.drop_weights(file.extent)
            file.extent, file.number = extent, number
        job.weights.add(name)

    def found(self) -> Iterator[WeightsFound]:
        """What is on the devices."""
        self._take_back_stale()
        for key, file in self._files.items():
            device = self._seating.devices[key[0]]
            if in_pages(device) and file.bank is not None:
                device.weights.hold_for(file.bank, file.size)
            elif file.extent is None:
                os.pwrite(file.fd, HEADER, 0)
                continue
            yield WeightsFound(*key, file.size, file.reload_us)

    def _take_back_stale(self) -> None:
        """Nobody keeps what does not count."""
        current = {file.name for file in self._files.values()}
        current |= {file.extent_name(key) for key, file in self._files.items() if file.extent is not None}
        for job in self._jobs.live.values():
            for name in sorted(job.weights - current):
                self._take_back(job.owner, name)
