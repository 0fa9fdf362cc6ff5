"""Copies between banks and stores, made by the daemon for jobs whose memory comes in extents.

A copy leaves its source unchanged, so one that fails, or is no longer wanted, has no effect.  While a copy runs, no
other job gets its bank, even when its job is gone.

Not yet run on a GPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from carpool.core.model import DeviceId, JobId
from carpool.daemon.jobs.table import JobRecord, Seated
from carpool.daemon.seats.allocator import MemoryFreed
from carpool.daemon.system.clock import monotonic_us
from carpool.devices.base import BankId, DeviceBackend, DeviceError, ExtentDevice, as_extents

_Way = Callable[[BankId, Sequence[tuple[int, int]], JobId], Callable[[], None]]


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of a copy.  ``error``: why it cannot be used."""

    size: int
    took_us: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy, with the job, seat and bank as they were at its beginning."""

    job: JobRecord
    seated: Seated
    device: ExtentDevice
    bank: BankId  # 0: the job has none yet, and only its store is emptied
    size: int
    then: Callable[[JobRecord, Copied], None]


class StoreCopies:
    """Runs at most one copy for each seat.  ``freed`` is told when a bank becomes free that only a copy had kept."""

    def __init__(self, devices: Mapping[DeviceId, DeviceBackend], freed: MemoryFreed) -> None:
        self._devices = devices
        self._freed = freed
        self._running: dict[int, asyncio.Task[None]] = {}  # by the identity of the seat
        self._next: dict[int, Callable[[JobRecord], None]] = {}

    def under_way(self, job: JobRecord) -> bool:
        """Return whether a copy from or to the job's bank has begun and not ended."""
        return id(job.seated) in self._running

    def out(self, job: JobRecord, then: Callable[[JobRecord, Copied], None]) -> None:
        """Copy the content of the job's bank to its store.  ``then`` is called later, unless the job is gone."""
        assert job.bank is not None
        copy = self._copy(job, job.attached.seat.get("p_used"), then)
        self._begin(copy, copy.device.copy_out)

    def back(self, job: JobRecord, then: Callable[[JobRecord, Copied], None]) -> None:
        """Copy the content of the job's store to its bank."""
        assert job.bank is not None
        copy = self._copy(job, job.attached.seat.get("stored"), then)
        self._begin(copy, copy.device.copy_in)

    def pin_ahead(self, job: JobRecord, size: int) -> None:
        """Pin ``size`` bytes of the job's store ahead of `out`, without waiting for that."""
        assert job.device is not None
        size = max(0, size - job.attached.seat.get("handles"))  # what the job has made it moves itself
        if not self.under_way(job):
            job.attached.seat.set("store_bytes", max(job.attached.seat.get("store_bytes"), size))
            as_extents(self._devices[job.device]).pin_ahead(job.id, size)

    def empty(self, job: JobRecord, then: Callable[[JobRecord], None]) -> None:
        """Free the pages of the job's store, whose content is not needed."""
        job.attached.seat.set("store_bytes", 0)
        copy = self._copy(job, 0, lambda job, _: then(job))
        self._begin(copy, lambda _bank, _ranges, number: copy.device.empty_store(number))

    def afterwards(self, job: JobRecord, then: Callable[[JobRecord], None]) -> None:
        """Call ``then`` when the present copy has ended, unless the job is gone."""
        self._next[id(job.seated)] = then

    async def close(self) -> None:
        """Wait for the copies that run."""
        await asyncio.gather(*self._running.values())

    def _copy(self, job: JobRecord, size: int, then: Callable[[JobRecord, Copied], None]) -> _Copy:
        assert job.device is not None
        assert not self.under_way(job)
        return _Copy(job, job.attached, as_extents(self._devices[job.device]), job.bank or 0, size, then)

    def _begin(self, copy: _Copy, way: _Way) -> None:
        self._running[id(copy.seated)] = asyncio.create_task(self._run(copy, way))

    async def _run(self, copy: _Copy, way: _Way) -> None:
        begun, error = monotonic_us(), None
        try:
            await asyncio.to_thread(way(copy.bank, [(0, copy.size)], copy.job.id))
        except (DeviceError, OSError) as failure:
            error = str(failure)
        del self._running[id(copy.seated)]
        after = self._next.pop(id(copy.seated), None)
        if copy.job.seated is copy.seated:
            copy.then(copy.job, Copied(copy.size, monotonic_us() - begun, error))
            if after is not None:
                after(copy.job)
        else:
            copy.device.free_bank(copy.bank)
            self._freed.tell()
