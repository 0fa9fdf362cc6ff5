"""The processes that the driver is to suspend for a job, and the measurement of what they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Protocol

from carpool.core.model import DeviceId, JobId
from carpool.daemon.checkpoint.notes import Note, Notes
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.system.clock import monotonic_us
from carpool.daemon.system.processes import below, is_stopped
from carpool.devices.base import DeviceBackend, ExtentDevice, as_extents, in_extents
from carpool.devices.cuda.suspension import Suspension
from carpool.options.requests import may_use
from carpool.telemetry.gpus import GpuReaders


class ShimPids(Protocol):
    """The table of the shims (`carpool.daemon.shims.links`)."""

    def pid(self, job: JobId) -> int | None:
        """Return the shim's process, which is above all of the job's."""
        ...


class Suspensions:
    """Work for the threads in which the driver suspends and resumes jobs."""

    def __init__(self, notes: Notes, devices: Mapping[DeviceId, DeviceBackend], shims: ShimPids) -> None:
        self._notes = notes
        self._devices = devices
        self._shims = shims

    def of(self, job: JobRecord) -> Suspension:
        """Return the suspension of all processes below the job's shim.  For a thread beside the loop."""
        shim, uuid = self._shims.pid(job.id), self.device(job).uuid

        def measure(pids: list[int]) -> int | None:
            with closing(GpuReaders()) as gpus:  # of this thread
                return gpus.held(uuid, pids, monotonic_us())

        def holds(pids: list[int]) -> bool:
            with closing(GpuReaders()) as gpus:
                return any(gpus.held(uuid, [pid], monotonic_us()) for pid in pids)

        return Suspension(
            lambda: below(shim) if shim is not None else [],
            lambda pid: is_stopped(pid, job.owner),
            measure,
            holds,
            lambda needed, complete: self._notes.write(job.id, Note(needed, complete)),
        )

    def again(self, job: JobRecord) -> Callable[[], int]:
        """Return work to suspend the job after a restart, unless that is done; it returns what a resume needs."""
        work, note, most = self.of(job), self._notes.read(job.id), self.device(job).capacity

        def suspend() -> int:
            return note.needed if note.complete and work.suspended() else work.suspend(note.needed, most)

        return suspend

    def found_on(self, job: JobRecord) -> DeviceId | None:
        """Return the device of a job after a restart; if no earlier daemon has recorded it, one where the job can be.

        None: the job is on no device here that can suspend it.
        """
        devices = self._devices
        if job.device is not None:
            device = devices.get(job.device)
            return job.device if device is not None and in_extents(device) else None
        return next((name for name, device in devices.items() if device.checkpoint and may_use(job.spec, name)), None)

    def device(self, job: JobRecord) -> ExtentDevice:
        assert job.device is not None
        return as_extents(self._devices[job.device])
