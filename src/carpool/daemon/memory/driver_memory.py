"""Device memory that jobs have from the driver itself: the limit of a job's secondary processes.

A job with several processes on one GPU has the device to itself.  The first process has memory by grant, each other one
(a *secondary process*) memory from the driver.  The core knows such memory as what it is: in use, and not by grant
(`ForeignMemory`, and `Usage.fixed` of the job).  All processes of the job together get what the device has beside the
memory of others.  A secondary process asks before it allocates, and is answered at once: what does not fit is refused,
which its program sees as the driver's out-of-memory error.

Not yet run on a GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from carpool.core.events import Event, ForeignMemory, Sampled
from carpool.core.model import MIB, DeviceId, MemoryClass
from carpool.core.policies.view import DeviceView
from carpool.core.state.amounts import of_class
from carpool.daemon.jobs.seat_table import Board
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.seats.allocator import Seating
from carpool.daemon.seats.record import LARGEST, answer_growth, needed, usage_of
from carpool.daemon.seats.sampler import tell_constraints
from carpool.daemon.system.clock import monotonic_us
from carpool.devices.base import DeviceError, as_extents
from carpool.protocol.seat import Grow, Seat

log = logging.getLogger(__name__)
CLASSES = (MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL)
MEASURED_STEP = 64 * MIB  # on a large device


class MemoryUser(Protocol):
    """A secondary process.  ``limit``: the bytes that it may have, which its seat says in ``p_limit``."""

    limit: int

    @property
    def board(self) -> Board: ...

    @property
    def seat(self) -> Seat: ...


class DriverMemory:
    """``view`` of a device: what the core has granted there, and to whom, at this moment."""

    def __init__(
        self, jobs: JobTable, seating: Seating, view: Callable[[DeviceId], DeviceView], post: Callable[[Event], None]
    ) -> None:
        self._jobs = jobs
        self._seating = seating
        self._view = view
        self._post = post
        self._measured: dict[DeviceId, tuple[int, int, int]] = {}
        self._told: dict[DeviceId, tuple[int, int, int]] = {}

    def measured(self, device: DeviceId, size: int, others: int, spare: int) -> None:
        """Telemetry has found ``size`` bytes in use there that are neither granted nor of secondary processes.

        Other programs have ``others`` of them; ``spare`` bytes are free beside the capacity.  Rounded so that less is
        left rather than more: the journal does not fill with every small change.
        """
        step = _step(self._seating.devices[device].capacity)
        self._measured[device] = (-(-size // step) * step, -(-others // step) * step, spare // step * step)
        self._tell(device)

    def asks(self, job: JobRecord, process: MemoryUser, total: int, number: int) -> None:
        """Request ``number`` of a secondary process, for ``total`` bytes in all; it is answered at once."""
        job.several = True
        tell_constraints(job, self._post)  # before it has anything
        more = total - process.limit
        fits = more <= 0 or (more <= self._room(job) and self._driver_has(job, more))
        if fits and more > 0:
            self._change(job, process, more)
        answer_growth(process.board, process.seat, Grow.GRANTED if fits else Grow.DENIED, number)

    def returns(self, job: JobRecord, process: MemoryUser, total: int) -> None:
        """It uses no more than ``total`` bytes; or it used no more before a restart, and has more by now."""
        words = process.seat.snapshot()
        less = process.limit - max(total, words.p_live + words.e_live)
        if less > 0:
            self._change(job, process, -less)

    def gone(self, job: JobRecord, process: MemoryUser) -> None:
        """The process has ended."""
        self._change(job, process, -process.limit)

    def forget(self, job: JobRecord) -> None:
        """The job has ended, with all its processes."""
        job.driver_bytes = 0
        self._tell_of(job)

    def adopt(self, job: JobRecord, process: MemoryUser) -> None:
        """An earlier daemon has let it have its limit.  `resume` follows when the core knows the devices."""
        assert job.device is not None
        process.limit = min(process.seat.get("p_limit"), self._seating.devices[job.device].capacity)
        job.driver_bytes += process.limit

    def resume(self) -> None:
        """After a restart: the core hears of the memory before it decides anything."""
        for device in self._seating.devices:
            self._tell(device)

    def _change(self, job: JobRecord, process: MemoryUser, more: int) -> None:
        """The core hears first of what a process may have, and last of what it has no more."""
        process.limit += more
        if more < 0:
            process.seat.set("p_limit", process.limit)
        job.driver_bytes += more
        tell_constraints(job, self._post)
        self._tell_of(job)
        if job.seated is not None:
            job.usage = usage_of(job, monotonic_us())
            self._post(Sampled(job.id, job.usage))
        if more > 0:
            process.seat.set("p_limit", process.limit)

    def _tell_of(self, job: JobRecord) -> None:
        if job.device is not None:
            self._tell(job.device)

    def _tell(self, device: DeviceId) -> None:
        limits = sum(job.driver_bytes for job in self._jobs.live.values() if job.device == device)
        size, others, spare = self._measured.get(device, (0, 0, self._seating.devices[device].spare))
        sizes = (size + limits, others, spare)
        if sizes != self._told.get(device, (0, 0, 0)):
            self._told[device] = sizes
            self._post(ForeignMemory(device, *sizes))

    def _room(self, job: JobRecord) -> int:
        """Bytes of its device that the job's secondary processes may have beside those that they have.

        What is reserved for the job's first process and not granted yet counts, if there is no other job.
        """
        assert job.device is not None
        view = self._view(job.device)
        if view.jobs == (job.id,):
            return view.capacity - view.foreign - job.granted.total - _due(job)
        return view.free - _due(job)

    def _driver_has(self, job: JobRecord, more: int) -> bool:
        """Free banks give way first: the books do not count them."""
        assert job.device is not None
        device = as_extents(self._seating.devices[job.device])
        try:
            if device.used_bytes() + job.driver_bytes + more > device.capacity or not device.has_room(more):
                device.give_way()
            return device.has_room(more)
        except (DeviceError, OSError) as error:
            log.warning("a secondary process of job %d gets no memory: %s", job.id, error)
            return False


def _step(capacity: int) -> int:
    """A power of two, no more than an eighth of the device."""
    return max(MIB, min(MEASURED_STEP, 1 << (capacity // 8).bit_length() - 1))


def _due(job: JobRecord) -> int:
    """Bytes that the first process waits for, or gets back with its next turn: they are nobody else's."""
    return sum(max(0, _wanted(job, kind) - of_class(job.granted, kind)) for kind in CLASSES)


def _wanted(job: JobRecord, kind: MemoryClass) -> int:
    if job.seated is None:
        return 0
    words = job.seated.seat.snapshot()
    waits = words.grow_seq != words.grow_ack and CLASSES[words.grow_class & 1] is kind
    return max(needed(job.seated.seat, kind), min(words.grow_total, LARGEST) if waits else 0)
