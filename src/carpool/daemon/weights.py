"""The memory of services' weights: one file per device, owner and key, mapped by every worker of the owner there.

On a host device the weights lie in that file.  It stays when they are dropped: its pages go, and workers need not map
it again.  Where memory comes in extents, the file's first bytes only say what is there (``native/groups.h``), and the
weights lie in an extent of their own, which goes when they are dropped.

Workers' shims keep duplicates, so weights outlive the daemon, and the worker that has brought them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from carpool.core.commands import DropWeights, PlaceWeights
from carpool.core.events import WeightsFound
from carpool.core.model import Demand, DeviceId, JobId
from carpool.daemon.aside import aside
from carpool.daemon.clock import wall_us
from carpool.daemon.demands import answer_demand, demand_of
from carpool.daemon.jobs import Job, JobTable
from carpool.daemon.keepsakes import is_weights_extent, weights_extent_name, weights_extent_of, weights_name, weights_of
from carpool.daemon.seating import Seating
from carpool.devices import memfd
from carpool.devices.base import DeviceError, Extent, ExtentDevice, in_extents
from carpool.protocol.seat import Packet, PacketType, Placed

#: Of the header, whose first bytes say that it is one (``native/groups.h``).
HEADER = bytes(memfd.PAGE)
#: What packets name: the file, the extent; and weights where lanes and banks have their class.
_FILE, _EXTENT = 0, 1
_CUT_WEIGHTS = 2
Key = tuple[DeviceId, int, str]  # device, owner, key of the weights


@dataclass(slots=True)
class _File:
    name: str  # under which shims keep it
    fd: int
    size: int
    reload_us: int
    emptying: bool = False  # its pages are being given back
    extent: Extent | None = None
    number: int = 0  # of the extent; no other one of these weights has it

    def extent_name(self, key: Key) -> str:
        assert self.extent is not None
        return weights_extent_name(key[0], key[2], self.number, self.extent.size)


class WeightFiles:
    """``placed`` hears of jobs that have had to wait for the memory."""

    def __init__(self, jobs: JobTable, seating: Seating, send: Callable[[JobId, Packet, list[int]], None]) -> None:
        self.placed: Callable[[Job], None] = lambda job: None
        self._jobs = jobs
        self._seating = seating
        self._send = send
        self._files: dict[Key, _File] = {}
        self._due: dict[JobId, Key] = {}  # what jobs have been promised, and not been told

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
        if file.emptying:
            return "memory is being given back"
        del self._due[job.id]
        self._answer(job, file, name)
        return None

    def _file(self, name: Key, demand: Demand) -> _File:
        file = self._files.get(name)
        if file is not None and file.size != demand.size:
            self._close(name)
            file = None
        if file is None:
            fd = memfd.create(f"carpool-{name[0]}-weights", demand.size, sealed=True)
            kept = weights_name(name[0], demand)
            file = self._files[name] = _File(kept, fd, demand.size, demand.reload_us)
        device = self._seating.devices[name[0]]
        if in_extents(device) and file.extent is None:
            file.extent = device.make_weights(demand.size)
            file.number = max(file.number + 1, wall_us())  # workers may still have one that no shim keeps any more
        return file

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
        os.pwrite(file.fd, HEADER, 0)  # first: half of the pages are nothing
        if file.extent is not None:
            self._drop_extent(name, file)
        elif not file.emptying and not self._device_in_extents(name):
            file.emptying = True
            fd, size = os.dup(file.fd), file.size
            aside("carpool-weights", lambda: memfd.punch_and_close(fd, size), lambda _: self._emptied(name, file))

    def _device_in_extents(self, name: Key) -> ExtentDevice | None:
        device = self._seating.devices[name[0]]
        return device if in_extents(device) else None

    def _drop_extent(self, name: Key, file: _File) -> None:
        """Its memory is free when all workers have let go of it."""
        device = self._device_in_extents(name)
        assert device is not None and file.extent is not None
        kept, file_extent, file.extent = file.extent_name(name), file.extent, None
        self._take_back(name, lambda known: known == kept)
        device.drop_weights(file_extent)

    def _take_back(self, name: Key, which: Callable[[str], bool]) -> None:
        """Extents of these weights, from whatever workers have them."""
        for job in self._jobs.live.values():
            gone = [known for known in job.weights if job.owner == name[1] and which(known)]
            if gone:
                self._let_go(job, gone)
                self._send(job.id, Packet(PacketType.CUT, a=int(name[2], 16), b=_CUT_WEIGHTS), [])
                if job.seated is not None:
                    job.seated.board.ring(job.seated.seat)

    def _let_go(self, job: Job, names: list[str]) -> None:
        job.weights -= set(names)
        job.weights_sent -= set(names)
        self._seating.drop(job.id, names)

    def _emptied(self, name: Key, file: _File) -> None:
        file.emptying = False
        for number in [number for number, due in self._due.items() if due == name]:
            if (job := self._jobs.live.get(number)) is None:
                del self._due[number]
            elif self.obstacle(job) is None:
                self.placed(job)
        self.tidy()

    def tidy(self) -> None:
        """Close what nobody has mapped and nothing is in."""
        used = {name for job in self._jobs.live.values() for name in job.weights}
        for key, file in tuple(self._files.items()):
            if file.name not in used and not file.emptying and not self._holds(key, file):
                self._close(key)

    def _holds(self, name: Key, file: _File) -> bool:
        """Is there anything on the device?"""
        return file.extent is not None if self._device_in_extents(name) else memfd.pages(file.fd) > 0

    def _close(self, key: Key) -> None:
        file = self._files[key]
        if file.extent is not None:
            self._drop_extent(key, file)
        del self._files[key]
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
        device, demand = weights_of(name)
        key = device, job.owner, demand.weights
        known = self._files.get(key)
        if not memfd.is_sealed(fd, demand.size):
            raise ValueError(f"{name} is not the memory of weights")
        if known is None:
            self._files[key] = _File(name, fd, demand.size, demand.reload_us)
        elif os.fstat(known.fd).st_ino == os.fstat(fd).st_ino:
            os.close(fd)
        else:
            raise ValueError(f"{name} is another file than that of other workers")
        job.weights.add(name)

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
        for key, file in self._files.items():
            if self._device_in_extents(key):
                self._settle(key, file)
            if self._holds(key, file):
                yield WeightsFound(*key, file.size, file.reload_us)

    def _settle(self, key: Key, file: _File) -> None:
        """Nobody keeps an extent that does not count, and without one nothing is there."""
        current = None if file.extent is None else file.extent_name(key)
        if current is None:
            os.pwrite(file.fd, HEADER, 0)
        stale = weights_extent_name(key[0], key[2])
        self._take_back(key, lambda known: known.startswith(stale) and known != current)
