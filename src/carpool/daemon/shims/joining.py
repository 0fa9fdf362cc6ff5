"""Processes that no shim has started: how they become jobs, come back after a restart, are signalled, and end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from carpool.core.events import CancelRequested, Event, ProcessExited
from carpool.core.model import JobId, JobPhase
from carpool.daemon.jobs.joined_process import JoinedProcess
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.seats.kept_fds import BOARD
from carpool.daemon.shims.endings import by_signal
from carpool.daemon.shims.sessions import Session
from carpool.daemon.shims.shim_table import ShimLinks
from carpool.daemon.system.clock import wall_us
from carpool.daemon.system.errors import CarpoolError, RequestError
from carpool.daemon.system.log_limit import caused_by
from carpool.daemon.system.processes import exit_status, parent_of, start_time
from carpool.protocol import session as messages
from carpool.protocol.api import SubmitRequest
from carpool.protocol.environment import token
from carpool.protocol.paths import Home

log = logging.getLogger(__name__)
#: A process whose job ends before it was placed gets SIGTERM, and is killed this much later.
KILL_S = 5.0
MOST_ANCESTORS = 64

#: Makes a job of a submission for the user at the other end.  Raises RequestError, JournalFull.
Accept = Callable[[Session, SubmitRequest], Awaitable[JobRecord]]
#: Takes over a registered process.  Owns the descriptors; the first is the job channel.
Registered = Callable[[Session, messages.Register, list[int]], None]


async def no_joins(_session: Session, _asked: SubmitRequest) -> JobRecord:
    """Refuse all joins, in a daemon in which no process can join, as in tests of its parts.  Raises RequestError."""
    raise RequestError(503, "no_joins", "no process can join here")


class JoinHandler:
    """Handles processes that join.  ``accept`` and the ``registered`` of `join` work once the daemon is complete."""

    def __init__(
        self,
        home: Home,
        privileges: Privileges,
        jobs: JobTable,
        links: ShimLinks,
        accept: Accept,
        post: Callable[[Event], None],
    ) -> None:
        self._token = token(home.root)
        self._privileges = privileges
        self._jobs = jobs
        self._links = links
        self._accept = accept
        self._post = post
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps no task alive

    def join(self, session: Session, message: messages.Join, channel: int, registered: Registered) -> None:
        """Let a process join in a task, as the answer waits for the journal or a restart's end.  Owns ``channel``."""
        task = asyncio.create_task(self._join(session, message, channel, registered))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, session: Session, message: messages.Join, channel: int, registered: Registered) -> None:
        try:
            job = self._job_of(session) or await self._accepted(session, message)
        except CarpoolError as error:
            hint = f" ({error.info.hint})" if error.info.hint else ""
            _refuse(session, channel, f"{error}{hint}")
        except Exception as error:  # noqa: BLE001 - every process is answered
            text = "process %d of uid %d cannot join: %s"
            log.error(text, session.pid, session.uid, error, extra=caused_by(session.uid))
            _refuse(session, channel, "the daemon has failed to make a job of it; see daemon.log")
        else:
            self._enter(job, session, channel, registered)

    def _enter(self, job: JobRecord, session: Session, channel: int, registered: Registered) -> None:
        if session.closed or session.process is None or job.id not in self._jobs.live:
            os.close(channel)
            self.withdraw(job)
            return
        self._links.ledger.join(job.id, session.process.identity)
        session.send(messages.Joined(job.id, job.attempt))
        registered(session, messages.Register(job.id, session.pid, attempt=job.attempt), [channel])

    def withdraw(self, job: JobRecord) -> None:
        """Cancel a job not placed yet whose process is gone or goes on without Carpool; after a restart, later."""
        if job.id in self._jobs.live and not job.cancelled:
            job.mark_cancelled()
            self._post(CancelRequested(job.id))

    def _job_of(self, session: Session) -> JobRecord | None:
        """Return the job that the process already is: its answer was lost, or it has become another program."""
        process = session.process
        if process is None:
            return None
        return next((job for job in self._jobs.live.values() if self.is_job(job, process)), None)

    def is_job(self, job: JobRecord, process: JoinedProcess | None) -> bool:
        """Return whether the process is the one that has joined as this job."""
        return job.spec.joined and process is not None and self._links.ledger.of(job.id).process == process.identity

    async def _accepted(self, session: Session, message: messages.Join) -> JobRecord:
        """Make a job of the process.  Raises CarpoolError."""
        if message.token != self._token:
            text = "its variables come from another daemon or machine, or from before a restart of the machine"
            raise RequestError(409, "old_variables", text, 'set them again: eval "$(carpool env)"')
        if (parent := self._parent_job(session.pid)) is not None:
            text = f"it belongs to job {parent} already"
            raise RequestError(409, "in_a_job", text, "start it outside of that job's processes")
        return await self._accept(session, _submission(message))

    def _parent_job(self, pid: int) -> JobId | None:
        """Return the job of the process itself or of one of its ancestors; None: none."""
        known = {job.pid: job.id for job in self._jobs.live.values() if job.pid is not None}
        known |= {shim: job for job in self._jobs.live if (shim := self._links.pid(job)) is not None}
        for _ in range(MOST_ANCESTORS):
            if not pid or pid in known:
                break
            pid = parent_of(pid)
        return known.get(pid)

    # After a restart

    def identified(self, job: JobRecord, session: Session, message: messages.Register) -> messages.Register:
        """Return the registration completed from the daemon's records: claims of the process itself do not count."""
        process = session.process
        assert process is not None
        if job.process is not None and job.process is not process:
            job.process.close()
        job.process, job.pid = process, process.pid
        started = process.pid if self.was_started(job) else None
        seated = process.pid if any(name.startswith(f"{BOARD}:") for name in message.kept) else None
        return msgspec.structs.replace(message, child_pid=started, attached_pid=seated)

    def was_started(self, job: JobRecord) -> bool:
        """Return whether the job has been placed, by this daemon or an earlier one."""
        return job.started_us is not None or bool(self._links.ledger.of(job.id).files)

    def lives(self, job: JobRecord) -> bool:
        """Return whether the job's process lives."""
        process = self._links.ledger.of(job.id).process
        return process is not None and start_time(process[0]) == process[1]

    # Signals

    def signal(self, job: JobRecord, number: int) -> None:
        """Signal the process, but none below it (they belong to its launcher); does nothing when it has ended."""
        if job.process is not None:
            first = number == signal.SIGTERM and job.process.begins_namespace
            self._signal(job.process, job.owner, signal.SIGKILL if first else number)

    def _signal(self, process: JoinedProcess, owner: int, number: int) -> None:
        try:
            if process.pidfd >= 0:
                with suppress(ProcessLookupError):
                    self._privileges.signal(process.pidfd, owner, number)
        except OSError as error:
            text = "process %d of uid %d cannot be signalled: %s"
            log.error(text, process.pid, owner, error, extra=caused_by(owner))

    def dismiss(self, job: JobRecord) -> None:
        """Release the process of a job that is over; end the process if its user or a limit has ended the job."""
        process = job.process
        if process is None:
            return
        if process.left or not (job.cancelled or job.control.timed_out) or not start_time(process.pid):
            process.close()
            return
        self.signal(job, signal.SIGTERM)
        asyncio.get_running_loop().call_later(KILL_S, self._kill, process, job.owner)

    def _kill(self, process: JoinedProcess, owner: int) -> None:
        self._signal(process, owner, signal.SIGKILL)
        process.close()

    # Ends

    def ending(self, job: JobRecord) -> ProcessExited:
        """Return how the job's process has ended: from the kernel, else as announced by the process, else unknown."""
        process = job.process
        status = None if process is None or process.pidfd < 0 else exit_status(process.pidfd, process.pid)
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            return ProcessExited(job.id, code) if code >= 0 else by_signal(job, -code, wall_us())
        if process is not None and process.last_word is not None:
            return ProcessExited(job.id, process.last_word)
        return ProcessExited(job.id, joined=True)

    def knows_ending(self, job: JobRecord) -> bool:
        """Return whether a definite end is known, so that no better report is to be awaited."""
        ending = self.ending(job)
        return ending.code is not None or ending.signal is not None

    def heard(self, job: JobRecord, message: messages.LastWord | messages.Leave) -> ProcessExited | None:
        """Handle a message of the process; return the end of the job if the message is one."""
        process = job.process
        if process is None:
            return None
        if isinstance(message, messages.LastWord):
            process.last_word = message.code & 0xFF
            return None
        if job.seated is not None:  # the process has a seat by now, and computes
            return None
        process.left = True
        if job.phase is JobPhase.QUEUED:
            self.withdraw(job)
            return None
        return ProcessExited(job.id, joined=True, note="it goes on without Carpool")


def _submission(message: messages.Join) -> SubmitRequest:
    """Make a submission of the request to join.  Raises RequestError."""
    try:
        options = msgspec.json.decode(message.options, type=messages.JoinOptions)
    except (ValueError, RecursionError) as error:
        text = f"CARPOOL_JOIN_OPTIONS cannot be read: {error}"
        raise RequestError(400, "bad_options", text, 'set it again: eval "$(carpool env)"') from None
    fields = msgspec.structs.asdict(options)
    argv = message.argv or ["(unknown)"]
    return SubmitRequest(argv=argv, cwd=message.directory, env={}, foreground=True, **fields)


def _refuse(session: Session, channel: int, why: str) -> None:
    os.close(channel)
    session.refuse(why)
