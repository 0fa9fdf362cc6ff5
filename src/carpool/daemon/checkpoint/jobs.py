"""The daemon's state of checkpoint jobs in addition to that of all jobs, also after a restart of the daemon.

After a restart all jobs that were on their device are suspended (again).  The driver's state of each process counts,
not what an earlier daemon has written down.  Not yet run on a GPU.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from carpool.core.events import Attached, Event, Sampled, TurnWanted
from carpool.core.model import DeviceId, JobId, Memory, Micros, Usage
from carpool.daemon.checkpoint.suspend import Suspensions
from carpool.daemon.jobs.killing import Signaller, kill
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.shims.shim_table import ShimLinks
from carpool.daemon.system.background import in_background
from carpool.daemon.system.clock import monotonic_us
from carpool.devices.cuda.checkpoint import CheckpointStuck, CheckpointUnsupported

BUSY_S = 1.0  # time between two attempts to suspend a job whose process cannot be suspended at present
RESTART_S = 60.0


class Stage(Enum):
    """The state of a checkpoint job between two turns."""

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
        """Record where a job is now."""
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
        """Record that a job is suspended.  ``needed``: bytes that its resume needs."""
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


@dataclass(eq=False)
class CheckpointRestart:
    """Suspends the jobs that an earlier daemon has left on their devices, and tells the core of such jobs again."""

    _checkpoint_jobs: CheckpointJobs
    _jobs: JobTable
    _suspensions: Suspensions
    _shims: ShimLinks
    _processes: Signaller
    _why_not: Callable[[JobRecord], str | None]
    _post: Callable[[Event], None]

    async def restart(self) -> None:
        """Suspend all jobs that an earlier daemon has left on their devices, before the core is told anything.

        No other job computes there meanwhile, because such a job had its device to itself.
        """
        found = [job for job in self._jobs.live.values() if job.by_checkpoint and self._shims.pid(job.id)]
        await asyncio.gather(*map(self._suspend_again, found))

    def resume(self, job: JobRecord) -> None:
        """Tell the core that a job, which the core knows and has a lane for, wants a turn."""
        if job.id not in self._checkpoint_jobs.of:
            return
        self._post(Attached(job.id))
        self._post(Sampled(job.id, job.usage))
        self._post(TurnWanted(job.id))

    async def _suspend_again(self, job: JobRecord) -> None:
        job.device = self._suspensions.found_on(job)
        if job.device is None:
            kill(job, "checkpoint", "no device here can suspend it any more", self._processes)
            return
        state = self._checkpoint_jobs.of[job.id] = CheckpointJob(Stage.LEAVING, since_us=monotonic_us())
        if (why := self._why_not(job)) is not None:
            self._stays(job, state, why)
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RESTART_S
        while True:
            result: asyncio.Future[int | Exception] = loop.create_future()
            in_background(f"suspend-{job.id}", self._suspensions.again(job), result.set_result)
            answer = await result
            if not isinstance(answer, Exception):
                self._checkpoint_jobs.is_off(job, state, job.usage, answer)
                return
            if isinstance(answer, CheckpointStuck):
                self._checkpoint_jobs.is_off(job, state, job.usage, 0)
                kill(job, "checkpoint", str(answer), self._processes)
                return
            if isinstance(answer, CheckpointUnsupported) or loop.time() > deadline:
                state.was_busy = not isinstance(answer, CheckpointUnsupported)
                self._stays(job, state, str(answer))
                return
            await asyncio.sleep(BUSY_S)

    def _stays(self, job: JobRecord, state: CheckpointJob, why: str) -> None:
        job.pinned_why, job.on_device = f"it cannot be suspended: {why}", True
        self._checkpoint_jobs.enter(state, Stage.ON)
