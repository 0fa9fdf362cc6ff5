"""Device memory that jobs have from the driver itself: the limit of a job's secondary processes.

A job with several processes on one GPU has the device to itself.  The first process has memory by grant, each other one
(a *secondary process*) memory from the driver.  The core counts the latter as memory that is in use and not by grant
(`ForeignMemory`, and `Usage.fixed` of the job).  All processes of the job together get what the device has beyond the
memory of others.  A secondary process asks before it allocates, and is answered at once: a request that does not fit is
refused, which the program sees as the driver's out-of-memory error.

Not yet run on a GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from carpool.core.events import Event, ForeignMemory, Sampled
from carpool.core.model import MIB, DeviceId, MemoryClass
from carpool.core.policies.view import DeviceView
from carpool.core.state.amounts import of_class
from carpool.daemon.jobs.seat_table import Board
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.seats.allocator import SeatAllocator
from carpool.daemon.seats.record import LARGEST, answer_growth, needed, tell_constraints, usage_of
from carpool.daemon.system.clock import monotonic_us
from carpool.devices.base import DeviceError, as_extents
from carpool.protocol.seat import Grow, Seat

log = logging.getLogger(__name__)
CLASSES = (MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL)
MEASURED_STEP = 64 * MIB  # the rounding step on a large device


class MemoryUser(Protocol):
    """A secondary process.  ``limit``: the bytes that it may have, as its seat says in ``p_limit``."""

    limit: int

    @property
    def board(self) -> Board:
        """The board of the process's seat."""
        ...

    @property
    def seat(self) -> Seat:
        """The seat of the process."""
        ...


@dataclass(eq=False)
class DriverMemory:
    """Limits secondary processes.  ``_view`` of a device: what the core has granted there now, and to which jobs."""

    _jobs: JobTable
    _seating: SeatAllocator
    _view: Callable[[DeviceId], DeviceView]
    _post: Callable[[Event], None]
    _measured: dict[DeviceId, tuple[int, int, int]] = field(default_factory=dict)
    _told: dict[DeviceId, tuple[int, int, int]] = field(default_factory=dict)

    def measured(self, device: DeviceId, size: int, others: int, spare: int) -> None:
        """Take in what telemetry has found: ``size`` bytes in use, neither granted nor of secondary processes.

        Other programs have ``others`` of them; ``spare`` bytes are free beyond the capacity.  The sizes are rounded to
        leave less rather than more, so that the journal does not fill with small changes.
        """
        step = _step(self._seating.devices[device].capacity)
        self._measured[device] = (-(-size // step) * step, -(-others // step) * step, spare // step * step)
        self._tell(device)

    def asks(self, job: JobRecord, process: MemoryUser, total: int, number: int) -> None:
        """Answer request ``number`` of a secondary process, for ``total`` bytes in all; the answer is immediate."""
        job.has_secondary = True
        tell_constraints(job, self._post)  # before the process has any memory
        more = total - process.limit
        fits = more <= 0 or (more <= self._room(job) and self._driver_has(job, more))
        if fits and more > 0:
            self._change(job, process, more)
        answer_growth(process.board, process.seat, Grow.GRANTED if fits else Grow.DENIED, number)

    def returns(self, job: JobRecord, process: MemoryUser, total: int) -> None:
        """Lower a process's limit to ``total`` bytes; if it uses more by now, as after a restart, to what it uses."""
        words = process.seat.snapshot()
        less = process.limit - max(total, words.p_live + words.e_live)
        if less > 0:
            self._change(job, process, -less)

    def gone(self, job: JobRecord, process: MemoryUser) -> None:
        """Release the memory of a process that has ended."""
        self._change(job, process, -process.limit)

    def forget(self, job: JobRecord) -> None:
        """Release the memory of all processes of a job that has ended."""
        job.driver_bytes = 0
        self._tell_of(job)

    def adopt(self, job: JobRecord, process: MemoryUser) -> None:
        """Adopt the limit that an earlier daemon gave; `resume` follows when the core knows the devices."""
        assert job.device is not None
        process.limit = min(process.seat.get("p_limit"), self._seating.devices[job.device].capacity)
        job.driver_bytes += process.limit

    def resume(self) -> None:
        """After a restart, tell the core of the memory before it decides anything."""
        for device in self._seating.devices:
            self._tell(device)

    def _change(self, job: JobRecord, process: MemoryUser, more: int) -> None:
        """Change a limit.  The core is told before a process may use more, and after it may no longer use as much."""
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
        """Return how many further bytes of the device the job's secondary processes may have.

        Memory reserved for the job's first process and not granted yet counts, if there is no other job.
        """
        assert job.device is not None
        view = self._view(job.device)
        if view.jobs == (job.id,):
            return view.capacity - view.foreign - job.granted.total - _due(job)
        return view.free - _due(job)

    def _driver_has(self, job: JobRecord, more: int) -> bool:
        """Return whether the driver has the bytes.  Free banks, which the core does not count, are given up first."""
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
    """Return the rounding step: a power of two, at most an eighth of the device."""
    return max(MIB, min(MEASURED_STEP, 1 << (capacity // 8).bit_length() - 1))


def _due(job: JobRecord) -> int:
    """Return the bytes that the first process waits for, or gets back with its next turn; they are kept for it."""
    return sum(max(0, _wanted(job, kind) - of_class(job.granted, kind)) for kind in CLASSES)


def _wanted(job: JobRecord, kind: MemoryClass) -> int:
    if job.seated is None:
        return 0
    words = job.seated.seat.snapshot()
    waits = words.grow_seq != words.grow_ack and CLASSES[words.grow_class & 1] is kind
    return max(needed(job.seated.seat, kind), min(words.grow_total, LARGEST) if waits else 0)
