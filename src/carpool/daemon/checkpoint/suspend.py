"""The processes that the driver is to suspend for a job, and notes of what their resume needs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from carpool.core.model import DeviceId, JobId
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.shims.shim_table import ShimLinks
from carpool.daemon.system.clock import monotonic_us
from carpool.daemon.system.processes import below, is_stopped
from carpool.devices.base import DeviceBackend, ExtentDevice, as_extents, in_extents
from carpool.devices.cuda.suspension import Suspension
from carpool.options.requests import may_use
from carpool.telemetry.gpus import GpuReaders

log = logging.getLogger(__name__)


class Note(msgspec.Struct, frozen=True):
    """The record of a job that is suspended, or is about to be."""

    needed: int = 0  # bytes of device memory, contexts included; 0: nothing is known
    complete: bool = False  # all of its processes had been suspended


class Notes:
    """One small file for each job in the daemon's own directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, job: JobId, note: Note) -> None:
        """Write a note durably, all of it or nothing.  Raises OSError."""
        path = self._file(job)
        new = path.with_suffix(".new")
        with new.open("wb") as file:
            file.write(msgspec.json.encode(note))
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def read(self, job: JobId) -> Note:
        """Return the note of a job; an empty one if there is none, or it makes no sense."""
        try:
            return msgspec.json.decode(self._file(job).read_bytes(), type=Note)
        except FileNotFoundError:
            return Note()
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("the needs of job %d for its resume cannot be read: %s", job, error)
            return Note()

    def forget(self, job: JobId) -> None:
        """Remove the note of a job, if there is one."""
        self._file(job).unlink(missing_ok=True)

    def _file(self, job: JobId) -> Path:
        return self._directory / f"suspended-{job}"


class Suspensions:
    """Work for the threads in which the driver suspends and resumes jobs."""

    def __init__(self, notes: Notes, devices: Mapping[DeviceId, DeviceBackend], shims: ShimLinks) -> None:
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
        """Return the device of a job, which can suspend it."""
        assert job.device is not None
        return as_extents(self._devices[job.device])
