"""Checkpoint jobs, for which the daemon speaks: nothing of Carpool is in their processes.

Such a job always wants a turn.  Its process is started with the first turn; later turns begin with a resume and end
with a suspend, by the driver, in a thread.  What a resume needs is on the disk before anything is suspended.  A job
that the driver cannot suspend keeps its turn, and has its device to itself.  A job that cannot be resumed is lost: it
is killed, and its end says why.

Not yet run on a GPU.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass

from carpool.core.events import Attached, Event, StartFailed, TraitsSeen, TurnReleased, TurnWanted
from carpool.core.model import Cause, Memory, Micros, Reason
from carpool.daemon.checkpoint.jobs import BUSY_S, CheckpointJob, CheckpointJobs, Stage
from carpool.daemon.checkpoint.suspend import Note, Notes, Suspensions
from carpool.daemon.jobs.killing import kill
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.shims.supervisor import Processes
from carpool.daemon.system.background import in_background
from carpool.daemon.system.clock import monotonic_us
from carpool.devices.base import DeviceError, ExtentDevice
from carpool.devices.cuda.checkpoint import CheckpointStuck, CheckpointUnsupported, NoSuchProcess, NotGuaranteed

log = logging.getLogger(__name__)
RETRY_S = 0.05
#: However often other jobs ask for it, a turn is longer than the resume before it and the suspend after it.
LEAST_TURN_US: Micros = 100_000
#: A turn whose memory does not become available is given back after this time, if other jobs ask for it.
PATIENCE_US: Micros = 2_000_000
#: A job counts as one that cannot be suspended after so many failures in a row.
MOST_FAILURES = 3
NO_ROOM = "the driver has not freed it yet"
NOT_CUT = "other jobs have not released it yet"


@dataclass(eq=False)
class Checkpointing:
    """Carries out the core's commands to checkpoint jobs, with the suspends and resumes that follow from them.

    ``_why_not``: why a job is not to be suspended, as far as earlier runs of its command have shown it.
    """

    _checkpoint_jobs: CheckpointJobs
    _notes: Notes
    _jobs: JobTable
    _suspensions: Suspensions
    _processes: Processes
    _why_not: Callable[[JobRecord], str | None]
    _post: Callable[[Event], None]

    # The core's commands

    def start(self, job: JobRecord) -> None:
        """Handle `StartJob`: the process itself waits for its turn."""
        self._checkpoint_jobs.of[job.id] = CheckpointJob(Stage.NEW)
        self._post(Attached(job.id))
        self._post(TurnWanted(job.id))

    def turn(self, job: JobRecord) -> None:
        """Handle `GrantTurn`: the job's memory is reserved, and no other job computes on the device."""
        state = self._checkpoint_jobs.of[job.id]
        job.switches += 1
        state.yield_asked, state.since_us = False, monotonic_us()
        if state.stage is not Stage.ON:  # a job that could not be suspended may still be on its device
            self._come(job, state)
        elif state.was_busy:
            state.was_busy, job.pinned_why = False, None
            self._post(TraitsSeen(job.id))

    def request_yield(self, job: JobRecord) -> None:
        """Handle `RequestYield`: suspend the job, as soon as it is on its device."""
        state = self._checkpoint_jobs.of[job.id]
        if not state.yield_asked and state.stage is Stage.ON:
            state.yield_asked = True
            self._leave(job, state)
        state.yield_asked = True

    def withdraw_yield(self, job: JobRecord) -> None:
        """Handle `WithdrawYield`: the job may keep its turn."""
        self._checkpoint_jobs.of[job.id].yield_asked = False

    def signal(self, job: JobRecord, number: int) -> None:
        """Signal all processes of a job.

        If the processes are stopped, all signals but SIGKILL arrive with the next turn, which is urgent now.
        """
        state = self._checkpoint_jobs.of.get(job.id)
        if state is not None and state.stage is Stage.NEW:
            self._post(StartFailed(job.id, "it was stopped before its first turn"))
            return
        self._processes.signal(job, number)
        if state is not None and state.stage is Stage.OFF and number != signal.SIGKILL:
            self._post(TurnWanted(job.id, urgent=True))

    def forget(self, job: JobRecord) -> None:
        """Forget a job that has ended."""
        self._checkpoint_jobs.remove(job)
        self._notes.forget(job.id)

    # A turn begins

    def _come(self, job: JobRecord, state: CheckpointJob) -> None:
        """Start or resume a job, as soon as the memory that is reserved for it is available."""
        if self._checkpoint_jobs.of.get(job.id) is not state:
            return
        if state.stage is not Stage.NEW:
            self._checkpoint_jobs.enter(state, Stage.COMING)
        device = self._suspensions.device(job)
        device.give_way()
        if any(other.cuts for other in self._jobs.live.values() if other.device == job.device):
            self._wait(job, state, NOT_CUT)
        elif state.stage is Stage.NEW:
            self._processes.start(job)
            self._is_on(job, state)
        else:
            needed, granted = job.usage.persistent_live, job.granted.persistent
            work = self._suspensions.of(job)

            def resume() -> str | None:
                obstacle = self._unready(job, device, needed)
                if obstacle is None:
                    work.resume(needed, granted)
                return obstacle

            begun = monotonic_us()
            in_background(f"resume-{job.id}", resume, lambda result: self._came(job, state, result, begun))

    def _unready(self, job: JobRecord, device: ExtentDevice, needed: int) -> str | None:
        """Return why a job cannot be resumed yet; None: it can, and its note no longer says that it is suspended."""
        try:
            if needed and not device.has_room(needed):
                return NO_ROOM
            self._notes.write(job.id, Note(needed))
        except (DeviceError, OSError) as error:
            return str(error)
        return None

    def _wait(self, job: JobRecord, state: CheckpointJob, obstacle: str) -> None:
        if state.yield_asked and monotonic_us() - state.since_us > PATIENCE_US:
            self._give_up(job, state)
            return
        waits = Reason("device_memory", f"granted memory is not available yet: {obstacle}")
        if waits != job.grant_waits and obstacle not in (NO_ROOM, NOT_CUT):
            log.warning("job %d waits: %s", job.id, obstacle)
        job.grant_waits = waits
        asyncio.get_running_loop().call_later(RETRY_S, self._come, job, state)

    def _give_up(self, job: JobRecord, state: CheckpointJob) -> None:
        """Give back a turn whose memory has not become available, because other jobs want turns."""
        if state.stage is not Stage.NEW:
            self._checkpoint_jobs.enter(state, Stage.OFF)
        job.granted, job.grant_waits = Memory(), None
        self._released(job)

    def _released(self, job: JobRecord) -> None:
        """Tell the core that the turn is over and that the job wants another one, urgently if it is to end."""
        self._post(TurnReleased(job.id, Cause.FORCED, job.usage))
        self._post(TurnWanted(job.id, urgent=job.cancelled))

    def _came(self, job: JobRecord, state: CheckpointJob, result: str | Exception | None, begun: Micros) -> None:
        if self._checkpoint_jobs.of.get(job.id) is not state:
            return
        if isinstance(result, str | NotGuaranteed):
            self._wait(job, state, str(result))
        elif result is not None:
            kill(job, "checkpoint", f"it could not be resumed: {result}", self._processes)
        else:
            took = monotonic_us() - begun
            state.moved_us += took
            moved = job.usage.in_bytes + job.usage.persistent_live
            job.usage = dataclasses.replace(job.usage, in_bytes=moved, in_us=job.usage.in_us + took)
            self._is_on(job, state)

    def _is_on(self, job: JobRecord, state: CheckpointJob) -> None:
        self._checkpoint_jobs.enter(state, Stage.ON)
        job.on_device, job.grant_waits = True, None
        state.on_us = monotonic_us()
        if state.yield_asked:
            self._leave(job, state)

    # A turn ends

    def _leave(self, job: JobRecord, state: CheckpointJob) -> None:
        """Suspend a job once its turn was worth its price and its process, which may still be starting, is known."""
        there = self._checkpoint_jobs.of.get(job.id) is state and state.stage is Stage.ON and job.pinned_why is None
        if not there or not state.yield_asked:
            return
        left_us = state.on_us + max(LEAST_TURN_US, state.moved_us) - monotonic_us()
        if job.pid is None or left_us > 0:
            asyncio.get_running_loop().call_later(max(RETRY_S, left_us / 1e6), self._leave, job, state)
            return
        if (why := self._why_not(job)) is not None:
            self._stays(job, why)
            return
        self._checkpoint_jobs.enter(state, Stage.LEAVING)
        job.suspending = True
        work, most, begun = self._suspensions.of(job), job.granted.persistent, monotonic_us()
        in_background(
            f"suspend-{job.id}", lambda: work.suspend(0, most), lambda result: self._left(job, state, result, begun)
        )

    def _left(self, job: JobRecord, state: CheckpointJob, result: int | Exception, begun: Micros) -> None:
        if self._checkpoint_jobs.of.get(job.id) is not state:
            return
        job.suspending = isinstance(result, NoSuchProcess)
        if isinstance(result, Exception):
            self._checkpoint_jobs.enter(state, Stage.ON)
            self._not_left(job, state, result)
            return
        self._checkpoint_jobs.account(job, state)
        state.failures = 0
        state.moved_us = monotonic_us() - begun
        moved, took = job.usage.out_bytes + result, job.usage.out_us + state.moved_us
        usage = dataclasses.replace(job.usage, out_bytes=moved, out_us=took)
        self._checkpoint_jobs.is_off(job, state, usage, result)
        self._released(job)

    def _not_left(self, job: JobRecord, state: CheckpointJob, error: Exception) -> None:
        """Handle a suspend that failed: the job keeps its turn, and is killed if it is stuck."""
        state.failures += 1
        if isinstance(error, CheckpointStuck):
            kill(job, "checkpoint", str(error), self._processes)
        elif isinstance(error, CheckpointUnsupported):
            self._stays(job, str(error))
        elif state.failures >= MOST_FAILURES:
            self._stays(job, f"{error} ({state.failures} attempts in a row have failed)")
        else:
            log.warning("job %d cannot be suspended now: %s", job.id, error)
            asyncio.get_running_loop().call_later(BUSY_S, self._leave, job, state)

    def _stays(self, job: JobRecord, why: str) -> None:
        log.warning("job %d cannot be suspended and keeps %s: %s", job.id, job.device, why)
        job.pinned_why = f"it cannot be suspended: {why}"
        self._post(TraitsSeen(job.id, alone=job.pinned_why))
