"""Copies between banks and stores, by the daemon, for jobs whose memory comes in extents.

A copy leaves its source as it is, so one that fails, or that nobody wants any more, has changed nothing.  While it runs
its bank belongs to nobody else, also when its job is gone.

Not yet run on a GPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from carpool.core.model import DeviceId, JobId
from carpool.daemon.jobs.table import JobRecord, Seated
from carpool.daemon.seats.memory_freed import MemoryFreed
from carpool.daemon.system.clock import monotonic_us
from carpool.devices.base import BankId, DeviceBackend, DeviceError, ExtentDevice, as_extents

_Way = Callable[[BankId, Sequence[tuple[int, int]], JobId], Callable[[], None]]


@dataclass(frozen=True, slots=True)
class Copied:
    """How a copy has ended.  ``error``: why it is worth nothing."""

    size: int
    took_us: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Copy:
    """Of what was a job's when it began."""

    job: JobRecord
    seated: Seated
    device: ExtentDevice
    bank: BankId  # 0: it has none yet, and only its store is emptied
    size: int
    then: Callable[[JobRecord, Copied], None]


class StoreCopies:
    """At most one for each seat.  ``freed`` is told when a bank can be had again that only a copy had kept."""

    def __init__(self, devices: Mapping[DeviceId, DeviceBackend], freed: MemoryFreed) -> None:
        self._devices = devices
        self._freed = freed
        self._running: dict[int, asyncio.Task[None]] = {}  # by the identity of the seat
        self._next: dict[int, Callable[[JobRecord], None]] = {}

    def under_way(self, job: JobRecord) -> bool:
        """Whether a copy from or to the job's bank has begun and not ended."""
        return id(job.seated) in self._running

    def out(self, job: JobRecord, then: Callable[[JobRecord, Copied], None]) -> None:
        """What the job has in its bank, to its store.  ``then`` is called later, unless the job is gone."""
        assert job.seated is not None and job.bank is not None
        copy = self._copy(job, job.seated.seat.get("p_used"), then)
        self._begin(copy, copy.device.copy_out)

    def back(self, job: JobRecord, then: Callable[[JobRecord, Copied], None]) -> None:
        """What its store has, to its bank."""
        assert job.seated is not None and job.bank is not None
        copy = self._copy(job, job.seated.seat.get("stored"), then)
        self._begin(copy, copy.device.copy_in)

    def pin_ahead(self, job: JobRecord, size: int) -> None:
        """Have so many bytes of its store ready for `out`, without waiting for that."""
        assert job.seated is not None and job.device is not None
        if not self.under_way(job):
            job.seated.seat.set("store_bytes", max(job.seated.seat.get("store_bytes"), size))
            as_extents(self._devices[job.device]).pin_ahead(job.id, size)

    def empty(self, job: JobRecord, then: Callable[[JobRecord], None]) -> None:
        """Give the pages of its store back, of which nothing is needed."""
        assert job.seated is not None
        job.seated.seat.set("store_bytes", 0)
        copy = self._copy(job, 0, lambda job, _: then(job))
        self._begin(copy, lambda _bank, _ranges, number: copy.device.empty_store(number))

    def afterwards(self, job: JobRecord, then: Callable[[JobRecord], None]) -> None:
        """When the copy that is under way has ended, unless the job is gone."""
        self._next[id(job.seated)] = then

    async def close(self) -> None:
        """When those that run have ended."""
        await asyncio.gather(*self._running.values())

    def _copy(self, job: JobRecord, size: int, then: Callable[[JobRecord, Copied], None]) -> _Copy:
        assert job.seated is not None and job.device is not None
        assert not self.under_way(job)
        return _Copy(job, job.seated, as_extents(self._devices[job.device]), job.bank or 0, size, then)

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
