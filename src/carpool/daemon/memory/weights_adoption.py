"""The memory of weights that shims have kept for an earlier daemon."""

from __future__ import annotations

import os
from collections.abc import Iterator

from carpool.core.events import WeightsFound
from carpool.core.model import DeviceId
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.memory.weights import HEADER, File, Key, WeightFiles
from carpool.daemon.seats.allocator import SeatAllocator
from carpool.daemon.seats.kept_fds import free_bank_of, is_weights_extent, weights_extent_of, weights_of
from carpool.devices import memfd
from carpool.devices.base import BankId, DeviceBackend, DeviceError, Extent, PagedDevice, in_pages


class FoundWeights:
    """Takes over the weights that shims bring after a restart; of several versions the latest counts."""

    def __init__(self, jobs: JobTable, seating: SeatAllocator, weights: WeightFiles) -> None:
        self._jobs = jobs
        self._seating = seating
        self._weights = weights

    def adopt(self, job: JobRecord, name: str, fd: int) -> None:
        """Take over one kept item, files before extents.  Owns the descriptor, unless it raises ValueError."""
        if is_weights_extent(name):
            self._adopt_extent(job, name, fd)
            return
        if (free := free_bank_of(name)) is not None:
            self._adopt_memory(self._known_device(free[0], name), free[1], job.owner, name, Extent(fd, 0))
            job.weights.add(name)
            return
        device_id, demand, bank, number = weights_of(name)
        key = device_id, job.owner, demand.weights
        device = self._known_device(device_id, name)
        if in_pages(device):
            self._adopt_bank(device, key, File(name, fd, demand.size, demand.reload_us, bank, number=number))
        else:
            self._adopt_header(key, File(name, fd, demand.size, demand.reload_us))
        job.weights.add(name)

    def _known_device(self, device: DeviceId, name: str) -> DeviceBackend:
        if device not in self._seating.devices:
            raise ValueError(f"{name} is memory of a device that is not shared any more")
        return self._seating.devices[device]

    def _adopt_header(self, key: Key, file: File) -> None:
        known = self._weights.table.get(key)
        if not memfd.is_sealed(file.fd, file.size):
            raise ValueError(f"{file.name} is not the memory of weights")
        if known is None:
            self._weights.table[key] = file
        elif os.fstat(known.fd).st_ino == os.fstat(file.fd).st_ino:
            os.close(file.fd)
        else:
            raise ValueError(f"{file.name} is another file than that of other workers")

    def _adopt_bank(self, device: PagedDevice, key: Key, file: File) -> None:
        """Take over weights in a bank; earlier weights in this bank, and earlier copies in another bank, are gone."""
        assert file.bank is not None
        self._adopt_memory(device, file.bank, key[1], file.name, Extent(file.fd, file.size))
        file.fd = device.weights.files(file.bank)[0].fd
        rivals = [
            other
            for other, known in self._weights.table.items()
            if other == key or (other[0] == key[0] and known.bank == file.bank)
        ]
        if all(self._weights.table[other].number < file.number for other in rivals):
            for other in rivals:
                del self._weights.table[other]
            self._weights.table[key] = file
        self._weights.count_from(file.number)

    def _adopt_memory(self, device: DeviceBackend, bank: BankId, owner: int, name: str, memory: Extent) -> None:
        """Take over a bank, which is free until weights are known to be in it."""
        if not in_pages(device):
            raise ValueError(f"{name} is not memory of {device.id}")
        try:
            device.weights.check(bank, owner, [memory])
        except DeviceError as error:
            raise ValueError(f"{name} is not the memory of weights: {error}") from None
        device.weights.adopt(bank, owner, [memory])

    def _adopt_extent(self, job: JobRecord, name: str, fd: int) -> None:
        """Take over an extent if it is the latest; a worker with an earlier one has not computed with it since."""
        device_id, weights, number, size = weights_extent_of(name)
        key = device_id, job.owner, weights
        device, file = self._weights.device_in_extents(key), self._weights.table.get(key)
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
        """Yield the weights that are on the devices."""
        self._take_back_stale()
        for key, file in self._weights.table.items():
            device = self._seating.devices[key[0]]
            if in_pages(device) and file.bank is not None:
                device.weights.hold_for(file.bank, file.size)
            elif file.extent is None:
                os.pwrite(file.fd, HEADER, 0)
                continue
            yield WeightsFound(*key, file.size, file.reload_us)

    def _take_back_stale(self) -> None:
        """Let no shim keep memory that is out of date."""
        current = {file.name for file in self._weights.table.values()}
        current |= {file.extent_name(key) for key, file in self._weights.table.items() if file.extent is not None}
        used = {(key[0], file.bank) for key, file in self._weights.table.items()}
        for job in self._jobs.live.values():
            for name in sorted(job.weights - current):
                if (free := free_bank_of(name)) is None:
                    self._weights.take_back(job.owner, name)
                elif free in used:
                    self._weights.let_go(job, [name])
