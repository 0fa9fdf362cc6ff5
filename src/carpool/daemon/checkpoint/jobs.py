"""The daemon's state of checkpoint jobs in addition to that of all jobs: where each is between two turns."""

from __future__ import annotations

import dataclasses
from enum import Enum

from carpool.core.model import DeviceId, JobId, Memory, Micros, Usage
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.system.clock import monotonic_us


class Stage(Enum):
    """Where a checkpoint job is between two turns."""

    NEW = "new"  # it has no process yet
    OFF = "off"  # suspended
    COMING = "coming"
    ON = "on"
    LEAVING = "leaving"


@dataclasses.dataclass(slots=True)
class CheckpointJob:
    """One checkpoint job, from its start to its end."""

    stage: Stage
    yield_asked: bool = False
    since_us: Micros = 0  # of its present turn
    on_us: Micros = 0  # since when it is on its device
    moved_us: Micros = 0  # what its last suspend and resume have taken
    failures: int = 0  # suspends that have failed in a row
    was_busy: bool = False  # at a restart: it has its device to itself until it has a turn, which can be asked back


class CheckpointJobs:
    """All checkpoint jobs."""

    def __init__(self, jobs: JobTable) -> None:
        self.of: dict[JobId, CheckpointJob] = {}
        self._jobs = jobs
        self._changes = 0

    def enter(self, state: CheckpointJob, stage: Stage) -> None:
        state.stage = stage
        self._changes += 1

    def remove(self, job: JobRecord) -> None:
        """Forget a job that has ended."""
        state = self.of.pop(job.id, None)
        if state is not None:
            self._changes += 1
            self.account(job, state)
            job.on_device, job.grant_waits = False, None

    def present(self, device: DeviceId) -> tuple[int, frozenset[JobId]] | None:
        """Return the jobs on a device, with a number that changes with them; None while one comes or leaves."""
        jobs = [job for job in self._jobs.live.values() if job.device == device and job.by_checkpoint]
        here = [(job, state) for job in jobs if (state := self.of.get(job.id)) is not None]
        if any(state.stage in (Stage.COMING, Stage.LEAVING) for _, state in here):
            return None
        return self._changes, frozenset(job.id for job, state in here if state.stage is Stage.ON)

    def allocating(self, device: DeviceId) -> tuple[int, frozenset[JobId]] | None:
        """Return, as `present` does, jobs whose memory is not by grant while the core keeps all of the device for them.

        Those are checkpoint jobs on the device, and jobs that were submitted to share their devices with no other job.
        """
        present = self.present(device)
        if present is None:
            return None
        live = self._jobs.live.values()
        whole = (
            job.id
            for job in live
            if job.pid is not None and device in (job.device, *job.other_devices) and job.submitted_exclusive
        )
        return present[0], present[1].union(whole)

    def is_off(self, job: JobRecord, state: CheckpointJob, usage: Usage, needed: int) -> None:
        peak = max(usage.persistent_peak, needed)
        job.usage = dataclasses.replace(usage, persistent_live=needed, persistent_peak=peak)
        job.on_device, job.granted = False, Memory()
        self.enter(state, Stage.OFF)

    def account(self, job: JobRecord, state: CheckpointJob) -> None:
        """Count the job's turn as device time, suspending and resuming included."""
        if state.stage in (Stage.ON, Stage.LEAVING):
            now = monotonic_us()
            lasted, state.since_us = max(0, now - state.since_us), now
            job.usage = dataclasses.replace(job.usage, device_us=job.usage.device_us + lasted)
