"""Jobs' processes as the daemon sees them: spawning shims, their registration, signals, ends."""

from __future__ import annotations

import asyncio
import logging
import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from carpool.core.events import CancelRequested, Event, ProcessExited, ProcessStarted, StartFailed
from carpool.core.model import JobId, JobPhase
from carpool.daemon.channels import Channels
from carpool.daemon.clock import wall_us
from carpool.daemon.jobfiles import create_directory, read_exit, shim_lives, take_lock
from carpool.daemon.jobs import Job, JobTable
from carpool.daemon.journal import disk_full
from carpool.daemon.seats import usage_at_end
from carpool.daemon.sessions import Session, SessionServer
from carpool.daemon.store import Store
from carpool.protocol import session as messages
from carpool.protocol.paths import Home

log = logging.getLogger(__name__)
SHIM = Path(__file__).resolve().parents[1] / "runtime" / "shim.py"
RETRY_S = 1.0
FOREGROUND_TIMEOUT_S = 30.0


@dataclass(slots=True)
class Process:
    """The shim of one job."""

    session: Session | None = None
    pidfd: int | None = None
    popen: subprocess.Popen[bytes] | None = None
    start_asked: bool = False  # the core wants the job to run
    start_sent: bool = False
    started: bool = False  # the core knows that it runs
    over: bool = False  # the core knows how it ended
    signals: list[int] = field(default_factory=list)  # for a shim that has not registered yet


class Processes:
    def __init__(
        self,
        home: Home,
        jobs: JobTable,
        store: Store,
        server: SessionServer,
        channels: Channels,
        post: Callable[[Event], None],
        threads: int | None,
    ) -> None:
        self._home = home
        self._jobs = jobs
        self._store = store
        self._server = server
        self._channels = channels
        self._post = post
        self._threads = threads
        self._of: dict[JobId, Process] = {}
        self.accepting = True  # false while the daemon ends all jobs before it stops
        self.recovered: Callable[[JobId], None] | None = None  # while a restarted daemon waits for its shims
        server.on_register = self._registered
        server.on_message = self._message

    def of(self, job: JobId) -> Process:
        return self._of.setdefault(job, Process())

    def start(self, job: Job) -> None:
        """`StartJob`: let a registered shim start the job, or spawn a shim first."""
        if not self.accepting:
            return  # the next daemon will
        process = self.of(job.id)
        process.start_asked = True
        if process.session is not None:
            self._send_start(job, process)
        elif job.spec.foreground:
            asyncio.get_running_loop().call_later(FOREGROUND_TIMEOUT_S, self._foreground_missing, job)
        else:
            self._spawn(job, process)

    def signal(self, job: Job, number: int) -> None:
        """To all processes of the job; kept for a shim that has not registered yet."""
        process = self.of(job.id)
        if process.session is not None and not process.session.closed:
            process.session.send(messages.Signal(number))
        else:
            process.signals.append(number)

    def keep(self, job: JobId, names: dict[str, int], attached_pid: int | None) -> None:
        """Let the shim hold duplicates, so that the memory outlives the daemon."""
        session = self.of(job).session
        if session is not None:
            session.send(messages.Keep(list(names), attached_pid), list(names.values()))

    def drop(self, job: JobId, names: list[str]) -> None:
        session = self.of(job).session
        if session is not None:
            session.send(messages.Drop(names))

    def forget(self, job: JobId, text: str) -> None:
        """The job has ended; a shim that still waits for its start is sent away with ``text``."""
        process = self._of.pop(job, None)
        if process is None:
            return
        if process.session is not None:
            if not process.start_sent:
                process.session.send(messages.Refused(text))
            self._server.drop(process.session)
        self._release_pidfd(process, reap=process.popen)

    def close(self) -> None:
        for process in self._of.values():
            self._release_pidfd(process, reap=None)

    # Registration and messages

    def _registered(self, session: Session, message: messages.Register, fds: list[int]) -> None:
        job = self._jobs.live.get(message.job)
        refusal = self._refusal(session, job, fds)
        if job is None or refusal:
            log.warning("refusing the shim of job %d (pid %d): %s", message.job, session.pid, refusal)
            session.send(messages.Refused(refusal or "unknown job"))
            for fd in fds:
                os.close(fd)
            self._server.drop(session)
            return
        process = self.of(job.id)
        if process.session is not None:
            self._server.drop(process.session)
        session.job, process.session = job.id, session
        self._watch(job.id, process, session.pid)
        self._channels.open(job, fds, message)
        self._catch_up(job, process, message)

    def _refusal(self, session: Session, job: Job | None, fds: list[int]) -> str:
        if job is None:
            return "this daemon knows no such job, or it has ended"
        if session.uid not in (0, os.geteuid(), job.owner):
            return "the job belongs to another user"
        if not fds:
            return "the registration brought no job channel"
        return ""

    def _catch_up(self, job: Job, process: Process, message: messages.Register) -> None:
        if message.child_pid is not None:
            self._is_running(job, process, message.child_pid)
        if self.recovered is not None:
            self.recovered(job.id)
            return
        for number in process.signals:
            session = process.session
            assert session is not None
            session.send(messages.Signal(number))
        process.signals.clear()
        if process.start_asked and message.child_pid is None:
            self._send_start(job, process)

    def _message(self, session: Session, message: messages.FromShim) -> None:
        job = self._jobs.live.get(session.job or 0)
        if job is None:
            return
        process = self.of(job.id)
        match message:
            case messages.Started(pid):
                self._is_running(job, process, pid)
            case messages.StartFailed(text):
                self._is_over(process, StartFailed(job.id, text))
            case messages.Exited(code, number):
                self._is_over(process, ProcessExited(job.id, code, number))

    def _is_running(self, job: Job, process: Process, pid: int) -> None:
        job.pid = pid
        process.start_asked = process.start_sent = True
        if process.started:
            return
        process.started = True
        if job.phase is JobPhase.STARTING:
            job.phase = JobPhase.RUNNING
        job.started_us = job.started_us or wall_us()
        self._store.started(job)
        if self.recovered is None:  # else `Adopted` tells the core
            self._post(ProcessStarted(job.id))

    def _is_over(self, process: Process, event: ProcessExited | StartFailed) -> None:
        if process.over:
            return
        process.over = True
        self._channels.process_ended(event.job)
        self._post(event)

    # Spawning

    def _spawn(self, job: Job, process: Process) -> None:
        if job.id not in self._jobs.live:  # cancelled while a full disk made us wait
            return
        try:
            files = create_directory(self._home, job.id, job.owner, job.gid)
            lock = take_lock(files)
            if lock is None:
                return  # a shim lives already and will register
            try:
                process.popen = self._popen(job, lock)
            finally:
                os.close(lock)
        except OSError as error:
            if disk_full(error):
                log.error("job %d waits for room on the disk: %s", job.id, error)
                asyncio.get_running_loop().call_later(RETRY_S, self._spawn, job, process)
            else:
                self._is_over(process, StartFailed(job.id, f"cannot start its supervisor: {error}"))
            return
        self._watch(job.id, process, process.popen.pid)

    def _popen(self, job: Job, lock: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-S", str(SHIM), str(self._home.root), str(job.id), str(lock)]
        if os.geteuid() == 0 and job.owner != 0:
            # The shim becomes its owner as soon as it is loaded: our interpreter need not be readable for everybody.
            groups = ",".join(map(str, groups_of(job.owner, job.gid)))
            command += [str(job.owner), str(job.gid), groups]
        null = subprocess.DEVNULL
        return subprocess.Popen(
            command,
            stdin=null,
            stdout=null,
            stderr=null,
            cwd="/",
            env={"LANG": "C.UTF-8"},
            pass_fds=(lock,),
            start_new_session=True,
        )

    def _send_start(self, job: Job, process: Process) -> None:
        session = process.session
        assert session is not None
        spec = messages.StartSpec(job.spec.argv, job.spec.cwd, job.spec.env, self._threads)
        fd = os.memfd_create(f"carpool-start-{job.id}", os.MFD_CLOEXEC)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(msgspec.json.encode(spec))
            process.start_sent = True
            session.send(messages.Start(), [fd])
        finally:
            os.close(fd)

    def _foreground_missing(self, job: Job) -> None:
        if job.id in self._jobs.live and self.of(job.id).session is None:
            text = f"its terminal did not appear within {FOREGROUND_TIMEOUT_S:.0f} s"
            self._is_over(self.of(job.id), StartFailed(job.id, text))

    # Ends

    def _watch(self, job: JobId, process: Process, pid: int) -> None:
        if process.pidfd is not None:
            return
        try:
            process.pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            asyncio.get_running_loop().call_soon(self._shim_gone, job)
            return
        asyncio.get_running_loop().add_reader(process.pidfd, self._shim_gone, job)

    def _shim_gone(self, job_id: JobId) -> None:
        process, job = self._of.get(job_id), self._jobs.live.get(job_id)
        if process is None:
            return
        self._release_pidfd(process, reap=process.popen)
        if job is not None and not process.over:
            self.settle(job)

    def settle(self, job: Job) -> None:
        """No shim lives: find out how the job ended and tell the core."""
        process = self.of(job.id)
        files = self._home.job(job.id)
        record = read_exit(files, job.owner)
        if record is not None and job.seated is None:
            job.usage = usage_at_end(record.seat) or job.usage
        if record is not None and record.text:
            self._is_over(process, StartFailed(job.id, record.text))
        elif record is not None:
            self._is_over(process, ProcessExited(job.id, record.code, record.signal))
        elif job.spec.foreground and job.phase is JobPhase.QUEUED:
            job.cancelled = process.over = True
            self._post(CancelRequested(job.id))
        elif job.spec.foreground and not process.started:
            self._is_over(process, StartFailed(job.id, "its terminal went away before it started"))
        elif process.started or files.started.exists():
            log.error("the shim of job %d is gone without a trace of how the job ended", job.id)
            self._is_over(process, ProcessExited(job.id))
        else:
            self._is_over(process, StartFailed(job.id, "its supervisor ended before it could start the job"))

    def _release_pidfd(self, process: Process, reap: subprocess.Popen[bytes] | None) -> None:
        """Stop watching; a shim of ours that is still about to exit is reaped when it has."""
        if process.pidfd is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(process.pidfd)
        pidfd, process.pidfd = process.pidfd, None
        if reap is None or reap.poll() is not None:
            os.close(pidfd)
            return

        def gone() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            reap.poll()

        loop.add_reader(pidfd, gone)

    def lives(self, job: JobId) -> bool:
        """Whether a shim of the job holds its lock."""
        return shim_lives(self._home.job(job))


def groups_of(uid: int, gid: int) -> list[int]:
    """The supplementary groups of a user; only ``gid`` for a uid without an account."""
    try:
        return os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:
        return [gid]
