"""Checkpoint jobs after a restart of the daemon: all that were on their device are suspended (again).

The driver's state of each process counts, not what an earlier daemon has written down.  Not yet run on a GPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from carpool.core.events import Attached, Event, Sampled, TurnWanted
from carpool.daemon.checkpoint.driver import BUSY_S
from carpool.daemon.checkpoint.jobs import CheckpointJob, CheckpointJobs, Stage
from carpool.daemon.checkpoint.suspend import ShimPids, Suspensions
from carpool.daemon.jobs.killing import Signaller, kill
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.system.background import in_background
from carpool.daemon.system.clock import monotonic_us
from carpool.devices.cuda.checkpoint import CheckpointStuck, CheckpointUnsupported

RESTART_S = 60.0


class CheckpointRestart:
    """Suspends the jobs that an earlier daemon has left on their devices, and tells the core of such jobs again."""

    def __init__(
        self,
        checkpoint_jobs: CheckpointJobs,
        jobs: JobTable,
        suspensions: Suspensions,
        shims: ShimPids,
        processes: Signaller,
        why_not: Callable[[JobRecord], str | None],
        post: Callable[[Event], None],
    ) -> None:
        self._checkpoint_jobs = checkpoint_jobs
        self._jobs = jobs
        self._suspensions = suspensions
        self._shims = shims
        self._processes = processes
        self._why_not = why_not
        self._post = post

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
