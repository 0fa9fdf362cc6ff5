"""The memory of services' weights: one file per device, owner and key, mapped by every worker of the owner there.

A file stays when its weights are dropped: its pages go, and workers need not map it again.  Workers' shims keep
duplicates, so weights outlive the daemon, and the worker that has brought them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from carpool.core.commands import DropWeights, PlaceWeights
from carpool.core.events import WeightsFound
from carpool.core.model import Demand, DeviceId, JobId
from carpool.daemon.aside import aside
from carpool.daemon.demands import answer_demand, demand_of
from carpool.daemon.jobs import Job, JobTable
from carpool.daemon.keepsakes import weights_name, weights_of
from carpool.daemon.seating import Seating
from carpool.devices import memfd
from carpool.devices.base import DeviceError
from carpool.protocol.seat import Packet, PacketType, Placed

#: Of the header, whose first bytes say that it is one (``native/groups.h``).
HEADER = bytes(memfd.PAGE)
Key = tuple[DeviceId, int, str]  # device, owner, key of the weights


@dataclass(slots=True)
class _File:
    name: str  # under which shims keep it
    fd: int
    size: int
    reload_us: int
    emptying: bool = False  # its pages are being given back


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
        except DeviceError as error:
            return str(error)
        if file.emptying:
            return "memory is being given back"
        del self._due[job.id]
        self._answer(job, file, name[2])
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
        return file

    def _answer(self, job: Job, file: _File, key: str) -> None:
        assert job.seated is not None
        if file.name not in job.weights:
            job.weights.add(file.name)
            # The shim keeps it first: what is there outlives us from the moment on when the worker may write.
            self._seating.keep(job.id, {file.name: file.fd}, job.seated.pid)
            self._send(job.id, Packet(PacketType.WEIGHTS, a=int(key, 16), b=file.size), [file.fd])
        answer_demand(job, Placed.YES)

    def drop(self, command: DropWeights) -> None:
        """Nobody computes with them, or will before they have been placed again."""
        name = command.device, command.owner, command.key
        file = self._files.get(name)
        if file is None:
            return
        os.pwrite(file.fd, HEADER, 0)  # first: half of the pages are nothing
        if not file.emptying:
            file.emptying = True
            fd, size = os.dup(file.fd), file.size
            aside("carpool-weights", lambda: memfd.punch_and_close(fd, size), lambda _: self._emptied(name, file))

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
            if file.name not in used and not file.emptying and not memfd.pages(file.fd):
                self._close(key)

    def _close(self, key: Key) -> None:
        file = self._files.pop(key)
        os.close(file.fd)
        for job in self._jobs.live.values():
            if file.name in job.weights and job.owner == key[1]:
                job.weights.discard(file.name)
                self._seating.drop(job.id, [file.name])

    # After a restart

    def adopt(self, job: Job, name: str, fd: int) -> None:
        """What a shim has kept.  Owns the descriptor.  Raises ValueError."""
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

    def found(self) -> Iterator[WeightsFound]:
        """What is on the devices."""
        for (device, owner, key), file in self._files.items():
            if memfd.pages(file.fd):
                yield WeightsFound(device, owner, key, file.size, file.reload_us)
