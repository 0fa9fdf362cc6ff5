"""Jobs' processes as the daemon sees them: spawning shims, their registration, signals, ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from functools import partial

from carpool.core.events import ProcessStarted, StartFailed
from carpool.core.model import JobId, JobPhase
from carpool.daemon.hooks.base import JobStart
from carpool.daemon.jobs.killing import kill
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal.records import JournalStore
from carpool.daemon.memory.offload import Offloads
from carpool.daemon.privileges.base import try_to_signal
from carpool.daemon.shims.endings import LONGEST_TEXT, exited, not_started
from carpool.daemon.shims.forced_ends import ForcedEnds
from carpool.daemon.shims.job_ends import JobEnds
from carpool.daemon.shims.joining import JoinHandler
from carpool.daemon.shims.sessions import Session
from carpool.daemon.shims.shim_table import Process, ShimParts
from carpool.daemon.shims.spawn import ShimSpawner, send_start
from carpool.daemon.system.errors import may_pass
from carpool.daemon.system.log_limit import caused_by
from carpool.protocol import session as messages

log = logging.getLogger(__name__)
RETRY_S = 1.0
STOPPED_SHIM = "the process that was to start it has been stopped"
FOREGROUND_TIMEOUT_S = 30.0


class Processes:
    """Starts the jobs' shims, handles their ends, and tells the core.  The supervisor of `SessionServer`."""

    def __init__(
        self,
        parts: ShimParts,
        starting: ShimSpawner,
        store: JournalStore,
        offloads: Offloads,
        ends: JobEnds,
        joining: JoinHandler,
    ) -> None:
        self._starting = starting
        self._privileges = parts.privileges
        self._jobs = parts.jobs
        self._store = store
        self._links = parts.links
        self._channels = parts.channels
        self._offloads = offloads
        self._recovery = parts.recovery
        self._hooks = parts.hooks
        self._post = parts.post
        self._table = parts.table
        self._ends = ends
        self._forced = ForcedEnds(parts, ends)
        self._joining = joining
        self._held: set[JobId] = set()  # jobs of whose earlier attempt something is left
        self._accepting = True

    def stop_starting(self) -> None:
        """Start no more jobs: the daemon ends all jobs before it stops, and new starts are left to the next daemon."""
        self._accepting = False

    def start(self, job: JobRecord) -> None:
        """`StartJob`: let a registered shim start the job, or spawn a shim first."""
        if not self._accepting:
            return
        process = self._table.of(job.id)
        process.start_asked = True
        if job.id in self._held:
            return
        self._forced.await_start(job, partial(kill, job, "shim_stopped", STOPPED_SHIM, self))
        if (session := self._links.of(job.id)) is not None:
            self._send_start(job, process, session)
        elif job.spec.joined:
            pass  # the joined process registers in a moment, or is gone
        elif job.spec.foreground:
            asyncio.get_running_loop().call_later(FOREGROUND_TIMEOUT_S, self._foreground_missing, job)
        else:
            self._spawn(job, process)

    def starts(self, job: JobId) -> bool:
        """Return whether the core wants the job to run."""
        return self._table.of(job).start_asked

    def hold(self, job: JobId) -> None:
        """Delay the job's next attempt until `release`."""
        self.forget(job, "its attempt is over")
        self._held.add(job)

    def release(self, number: JobId) -> None:
        """Let the next attempt begin: the earlier one is completely gone."""
        self._held.discard(number)
        job = self._jobs.live.get(number)
        if job is None or not self._table.of(number).start_asked:
            return
        if job.cancelled:
            self._ends.tell(self._table.of(number), StartFailed(number, "it was cancelled between two attempts"))
        else:
            self.start(job)

    def signal(self, job: JobRecord, number: int) -> None:
        """Signal all processes of the job; kept for a shim that has not registered yet."""
        process, session = self._table.of(job.id), self._links.of(job.id)
        if job.process is not None:
            self._joining.signal(job, number)
        elif session is not None and not session.closed:
            session.send(messages.Signal(number))
        elif job.spec.foreground and session is None and not process.started and not self._ends.lives(job.id):
            # Ctrl-C in the first moments of `carpool run`: no shim will come, and other jobs wait for the device.
            self._ends.tell(process, StartFailed(job.id, "it was cancelled before its terminal appeared"))
        else:
            process.keep_signal(number)
        if job.process is None:
            self._forced.signalled(job, number)

    def kill_process(self, pid: int, owner: int) -> None:
        """Kill a process; does nothing if the process has ended or does not belong to ``owner``."""
        try_to_signal(self._privileges, pid, owner, signal.SIGKILL)

    def forget(self, job: JobId, text: str) -> None:
        """Forget a job that has ended; a shim that still waits for its start is refused with ``text``."""
        process = self._table.drop(job)
        if process is None:
            return
        session, record = self._links.of(job), self._jobs.live.get(job)
        if record is not None:
            self._joining.dismiss(record)
        if session is not None and not process.start_sent:
            session.send(messages.Refused(text))
        self._links.disconnect(job)
        if process.child is None and process.watch is not None:
            process.watch.stop()  # a shim that this daemon spawned is still to be collected

    def close(self) -> None:
        """Stop watching as the daemon ends; shims and jobs go on."""
        for process in self._table:
            if process.watch is not None:
                process.watch.stop()

    # Registration and messages

    def refusal(self, session: Session, message: messages.Register) -> str:
        """Explain why the peer is not the shim of the job's present attempt; empty: it may be."""
        job = self._jobs.live.get(message.job)
        if job is None:
            return "this daemon knows no such job, or it has ended"
        if job.spec.joined or session.process is not None:
            return "" if self._joining.is_job(job, session.process) else "the job has another process"
        if message.attempt != job.attempt:
            return f"attempt {message.attempt} of the job is over"
        if session.uid not in (0, os.geteuid(), job.owner):
            return "the job belongs to another user"
        return ""

    def registered(self, session: Session, message: messages.Register, fds: list[int]) -> None:
        """Take over a shim that was not refused, for the first time or after a restart."""
        job = self._jobs.live[message.job]
        process = self._table.of(job.id)
        session.job = job.id
        self._links.connect(job.id, session)
        if job.spec.joined:
            message = self._identified(job, session, message)
        self._ends.watch(job.id, process, session.pid, None if job.process is None else job.process.duplicate())
        try:
            why = self._channels.open(job, fds, message)
        except OSError as error:
            log.error("job %d cannot be taken over yet: %s", job.id, error, extra=caused_by(job.owner))
            session.close()  # the shim connects again
            return
        self._catch_up(job, process, session, message)
        if why:
            kill(job, "not_adopted", why, self)

    def _identified(self, job: JobRecord, session: Session, message: messages.Register) -> messages.Register:
        """Complete the registration; a process that has become another program brings nothing and its seat is freed."""
        found = self._joining.identified(job, session, message)
        if found.attached_pid is None and job.seated is not None and not self._recovery.active:
            self._channels.attaching.detach(job)
        return found

    def join(self, session: Session, message: messages.Join, channel: int) -> None:
        """Let a process that no shim has started become a job."""
        self._joining.join(session, message, channel, self.registered)

    def _catch_up(self, job: JobRecord, process: Process, session: Session, message: messages.Register) -> None:
        if message.child_pid is not None:
            self._is_running(job, process, message.child_pid)
        if self._recovery.active:
            self._recovery.missing.discard(job.id)
            return
        signals, process.signals = process.signals, []
        for number in signals:
            self.signal(job, number)
        # A job whose shim did not answer during a restart counts as running, whether or not it was started.
        counts_as_running = job.phase is JobPhase.RUNNING and not (process.started or job.spec.joined)
        if message.child_pid is None and (process.start_asked or counts_as_running):
            self._send_start(job, process, session)

    def message(self, session: Session, message: messages.FromShim) -> None:
        """Handle a shim's message about a live job; messages about other jobs are ignored."""
        job = self._jobs.live.get(session.job or 0)
        if job is None:
            return
        if job.spec.joined:
            self._joined_says(job, message)
            return
        process = self._table.of(job.id)
        match message:
            case messages.Started(pid):
                self._is_running(job, process, pid)
            case messages.StartFailed(text):
                self._ends.heard(job, not_started(job.id, text))
            case messages.Taken(error, size):
                self._offloads.taken(job, error and error[:LONGEST_TEXT], size)
            case messages.Exited(code, number, host_memory):
                self._ends.heard(job, exited(job.id, code, number, host_memory))

    def _joined_says(self, job: JobRecord, message: messages.FromShim) -> None:
        """Handle a message of a joined process; the messages of shims do not apply to it."""
        if isinstance(message, messages.LastWord | messages.Leave):
            ending = self._joining.heard(job, message)
            if ending is not None:
                self._ends.heard(job, ending)

    def channel(self, session: Session, message: messages.Channel, fd: int) -> None:
        """Take the channel of another process of the job, which came through the attach socket.  Owns ``fd``."""
        job = self._jobs.live.get(session.job or 0)
        if job is None or job.spec.joined:
            os.close(fd)
        else:
            self._channels.bring(job, message.name, fd)

    def _is_running(self, job: JobRecord, process: Process, pid: int) -> None:
        job.pid = pid
        process.start_asked = process.start_sent = True
        if process.started:
            return
        process.started = True
        if job.phase is JobPhase.STARTING:
            job.phase = JobPhase.RUNNING
        job.started_us = job.started_us or self._jobs.now_us()
        self._hooks.started(job, self._links.pid(job.id))
        self._store.started(job)
        if not self._recovery.active:  # otherwise `Adopted` tells the core
            self._post(ProcessStarted(job.id))

    # Spawning

    def _spawn(self, job: JobRecord, process: Process) -> None:
        if job.id not in self._jobs.live or process.child is not None:  # cancelled while a full disk delayed the start
            return
        try:
            process.child = self._privileges.spawn_shim(job.id, job.attempt, job.owner, job.gid)
        except OSError as error:
            if may_pass(error):
                _try_later(job, error, partial(self._spawn, job, process))
            else:
                self._ends.tell(process, StartFailed(job.id, f"cannot start its supervisor: {error}"))
            return
        if process.child is not None:  # otherwise a shim lives already and will register
            self._ends.watch(job.id, process, process.child.pid, process.child.fd)

    def _send_start(self, job: JobRecord, process: Process, session: Session) -> None:
        """Start the job as soon as all features have prepared the start.

        A process that has joined runs already, in a group of its launcher; it may have asked for its seat.
        """
        if job.process is not None:
            self._is_running(job, process, job.process.pid)
            self._channels.settled(job)
            return
        assert job.device is not None  # the device on which the core has told the job to start
        spec = self._starting.spec(job, (job.device, *job.other_devices))
        start = JobStart(job, session.pid, spec, partial(self._is_over, job, session))
        self._hooks.starting(start, partial(self._prepared, start, process, session))

    def _prepared(self, start: JobStart, process: Process, session: Session, refused: str) -> None:
        if refused and not start.is_over():
            self._ends.heard(start.job, StartFailed(start.job.id, refused))
        else:
            self._record(start, process, session)

    def _record(self, start: JobStart, process: Process, session: Session) -> None:
        """Send the start once it is on the disk where the process will run: the next daemon has to know."""
        self._store.starting(start.job).add_done_callback(partial(self._recorded, start, process, session))

    def _recorded(self, start: JobStart, process: Process, session: Session, done: asyncio.Future[None]) -> None:
        error = done.exception()
        if error is None or start.is_over():
            self._tell_start(start, process, session)
        else:
            _try_later(start.job, error, partial(self._record, start, process, session))

    def _is_over(self, job: JobRecord, session: Session) -> bool:
        return session.closed or self._jobs.live.get(job.id) is not job

    def _tell_start(self, start: JobStart, process: Process, session: Session) -> None:
        """Send the start; try again later if that fails and the shim is still there."""
        job = start.job
        if start.is_over():
            self._ends.clear(job, start.shim)
            return
        try:
            send_start(session, start)
            process.start_sent = True
        except OSError as error:
            _try_later(job, error, partial(self._tell_start, start, process, session))

    def _foreground_missing(self, job: JobRecord) -> None:
        if job.id in self._jobs.live and self._links.of(job.id) is None:
            text = f"its terminal did not appear within {FOREGROUND_TIMEOUT_S:.0f} s"
            self._ends.tell(self._table.of(job.id), StartFailed(job.id, text))


def _try_later(job: JobRecord, error: BaseException, start: Callable[[], None]) -> None:
    log.error("job %d cannot be started yet: %s", job.id, error, extra=caused_by(job.owner))
    asyncio.get_running_loop().call_later(RETRY_S, start)
