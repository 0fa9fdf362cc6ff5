"""Ends of jobs as they happen: shims' reports and records, and what is killed before the core is told."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from carpool.core.events import CancelRequested, RequeueRequested
from carpool.core.model import JobId, JobPhase
from carpool.daemon.hooks.base import Ending, Remains
from carpool.daemon.jobs.files import read_exit, shim_lives, was_started
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.shims.endings import (
    ended_by_driver,
    exited,
    explained,
    recorded,
    unrecorded,
)
from carpool.daemon.shims.joining import JoinHandler
from carpool.daemon.shims.orphans import Orphans
from carpool.daemon.shims.shim_table import Process, ShimParts
from carpool.daemon.system.background import in_background
from carpool.daemon.system.errors import problems
from carpool.daemon.system.log_limit import caused_by, log_problems
from carpool.daemon.system.pidwatch import PidWatch

log = logging.getLogger(__name__)
RETRY_S = 1.0
LAST_WORD_S = 0.01  # time between looks whether a session has been read to its end
MOST_UNREAD = 30  # most attempts to read how a job has ended


class JobEnds:
    """Handles the ends of jobs and of their shims, and tells the core."""

    def __init__(self, parts: ShimParts, joining: JoinHandler) -> None:
        self._home = parts.home
        self._privileges = parts.privileges
        self._jobs = parts.jobs
        self._links = parts.links
        self._channels = parts.channels
        self._recovery = parts.recovery
        self._hooks = parts.hooks
        self._table = parts.table
        self._joining = joining
        self._post = parts.post

    def watch(self, job: JobId, process: Process, pid: int, fd: int | None = None) -> None:
        """Watch for the end of the job's shim.  ``fd``: its pidfd, if there is one already."""
        if process.watch is None:
            process.watch = PidWatch(pid, lambda: self._shim_gone(job, process), fd)
        elif fd is not None:
            os.close(fd)

    def heard(self, job: JobRecord, ending: Ending) -> None:
        """Handle the end of a job and of all processes that its shim could find; the control group may have more."""
        process = self._table.of(job.id)
        ending = self._hooks.exited(job, ending)
        remains = self._hooks.remains(job, self._links.pid(job.id))
        holder = self._channels.attaching.holder(job)
        if holder is not None:  # this process has joined the job from elsewhere, and uses the job's memory
            orphans = Orphans(self._privileges, self._home, job.id, job.owner, holder=holder)
            self._after(job, ending, remains, [orphans.end])
        elif remains.removed():
            self.tell(process, ending)
        else:
            self._after(job, ending, remains)

    def force(self, job: JobRecord, process: Process, shim: int | None, work: Sequence[Callable[[], None]]) -> None:
        """End the control group of a job whose shim has not ended the job after SIGKILL, then do ``work``.

        ``shim``: the shim's pid, if known.
        """
        session = None if job.spec.foreground else job.pid
        orphans = Orphans(self._privileges, self._home, job.id, job.owner, session)
        ending = exited(job.id, None, signal.SIGKILL, host_memory=False)
        self._after(job, ending, self._hooks.remains(job, shim), [*work, orphans.end])

    def clear(self, job: JobRecord, shim: int) -> None:
        """Remove what features have prepared for a start that is over, unless another start of the attempt uses it."""
        remains = self._hooks.remains(job, shim)
        if not remains.removed() and not self.is_live(job):
            in_background(f"remains-{job.id}", remains.end, partial(log_problems, job.owner))

    def tell(self, process: Process, event: Ending) -> None:
        """Tell the core how the job has ended: once, and after a restart only when the core knows the job."""
        if self._recovery.active:
            process.ended = event  # `deliver` will tell the core, which does not know the job yet
            return
        if process.over:
            return
        process.over = True
        self._channels.process_ended(event.job)
        job = self._jobs.live.get(event.job)
        if job is not None:
            job.suspending = ended_by_driver(event, job)
            self._requeue(job)
        self._post(
            event if job is None else explained(self._privileges, event, job, self._home.job(job.id, job.attempt))
        )

    def _requeue(self, job: JobRecord) -> None:
        """Requeue a job that the driver has ended: the job has not failed, and its command is not suspended again."""
        if job.suspending:
            job.control = msgspec.structs.replace(job.control, requeued=job.control.requeued | {job.attempt: job.owner})
            job.mark_stopping()
            self._post(RequeueRequested(job.id, "Carpool: NVIDIA's driver has ended the job while suspending it"))

    def deliver(self, job: JobRecord) -> None:
        """Tell the core, which knows the job after a restart, how the job has ended meanwhile, if it has."""
        process = self._table.of(job.id)
        if process.ended is not None:
            self.tell(process, process.ended)
        elif not self.lives(job.id):
            self.settle(job)
        elif self._links.of(job.id) is None:  # its shim is not watched yet
            self._later(job, lambda: self.deliver(job))

    def is_over(self, job: JobId) -> bool:
        """After a restart, return whether the job has ended meanwhile, so that `deliver` will report the end."""
        return self._table.of(job).ended is not None or not self.lives(job)

    def settle(self, job: JobRecord, session: int | None = None) -> None:
        """Find out how a job without a live shim ended, and tell the core.  ``session``: as in `Orphans`."""
        process = self._table.of(job.id)
        if job.spec.joined:
            self._settle_joined(job, process)
            return
        files = self._home.job(job.id, job.attempt)
        try:
            record = read_exit(self._privileges, files, job.owner)
            traces = record is None and was_started(self._privileges, files, job.owner)
        except OSError as error:
            process.unread += 1
            if process.unread < MOST_UNREAD:
                text = "the record of the end of job %d cannot be read yet: %s"
                log.error(text, job.id, error, extra=caused_by(job.owner))
                self._later(job, lambda: self.settle(job, session))
                return
            record, traces = None, True
        if record is not None:
            self.heard(job, recorded(job, record))
        elif job.spec.foreground and job.phase is JobPhase.QUEUED:
            self._withdraw(job, process)
        else:
            self._lost(job, process, Orphans(self._privileges, self._home, job.id, job.owner, session), traces)

    def _settle_joined(self, job: JobRecord, process: Process) -> None:
        """Settle a joined job whose process has ended.

        The process's last message may be unread, and its parent may not have collected it.
        """
        unread = self._links.still_open(job.id) is not None and process.unread < MOST_UNREAD
        if unread and not self._joining.knows_ending(job):
            process.unread += 1
            self._later(job, lambda: self._settle_joined(job, process), LAST_WORD_S)
        elif job.phase is JobPhase.QUEUED and not self._joining.was_started(job):
            self._withdraw(job, process)
        else:
            self.heard(job, self._joining.ending(job))

    def is_live(self, job: JobRecord) -> bool:
        """Return whether the job has not ended, and this attempt is the present one."""
        return self._jobs.live.get(job.id) is job

    def was_started(self, job: JobRecord) -> bool:
        """Return whether the present attempt of a job has been started."""
        if job.spec.joined:
            return self._table.of(job.id).started or self._joining.was_started(job)
        files = self._home.job(job.id, job.attempt)
        return self._table.of(job.id).started or was_started(self._privileges, files, job.owner)

    def _withdraw(self, job: JobRecord, process: Process) -> None:
        """Cancel a job whose start is no longer awaited."""
        job.cancelled = process.over = True
        if not self._recovery.active:  # otherwise the end of the restart does this
            self._post(CancelRequested(job.id))

    def lives(self, job: JobId) -> bool:
        """Return whether a shim of the job holds its lock, or whether the process that has joined lives."""
        record = self._jobs.live.get(job)
        if record is not None and record.spec.joined:
            return self._joining.lives(record)
        return shim_lives(self._privileges, self._home.job(job))

    def _after(self, job: JobRecord, ending: Ending, remains: Remains, work: Sequence[Callable[[], None]] = ()) -> None:
        process = self._table.of(job.id)

        def end() -> list[str]:
            found = remains.end()
            for each in work:
                found += problems(f"remaining processes of job {ending.job} cannot be ended", each)
            return found

        def done(result: list[str] | Exception) -> None:
            log_problems(job.owner, result)
            self.tell(process, ending)

        in_background(f"remains-{ending.job}", end, done)

    def _lost(self, job: JobRecord, process: Process, orphans: Orphans, traces: bool) -> None:
        remains = self._hooks.remains(job, None)
        left = {*orphans.pids(), *remains.pids()}
        stray = left - {job.pid}  # the kernel has killed the main process, which may take a moment to end
        ending = unrecorded(job, started=process.started, traces=traces, orphans=len(stray))
        if left or not remains.removed():
            self._after(job, ending, remains, [orphans.end])
        else:
            self.tell(process, ending)

    def _shim_gone(self, job_id: JobId, process: Process) -> None:
        if process.child is not None:
            process.child.collect()
        job = self._jobs.live.get(job_id)
        joined = job is not None and job.spec.joined
        if not joined and self._may_still_report(job_id, process):
            # If the shim could not record how the job ended, its last message is the only report.
            asyncio.get_running_loop().call_later(LAST_WORD_S, self._shim_gone, job_id, process)
        elif job is not None and not process.over and (joined or not process.forced):
            self.settle(job, None if job.spec.foreground else job.pid)

    def _may_still_report(self, job: JobId, process: Process) -> bool:
        return self._links.still_open(job) is not None and self._table.holds(job, process)

    def _later(self, job: JobRecord, work: Callable[[], None], delay_s: float = RETRY_S) -> None:
        """Do ``work`` after a delay, if the attempt is not over by then."""
        process = self._table.of(job.id)

        def unless_over() -> None:
            if self._table.holds(job.id, process) and not process.over:
                work()

        asyncio.get_running_loop().call_later(delay_s, unless_over)
