"""Jobs' processes as the daemon sees them: spawning shims, their registration, signals, ends."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from carpool.core.events import CancelRequested, Event, ProcessExited, ProcessStarted, StartFailed
from carpool.core.model import DeviceId, JobId, JobPhase
from carpool.daemon.channels.router import Channels
from carpool.daemon.jobs.files import read_exit, shim_lives
from carpool.daemon.jobs.oom_detection import ran_out
from carpool.daemon.jobs.table import Job, JobTable
from carpool.daemon.journal.records import Store
from carpool.daemon.journal.writer import disk_full
from carpool.daemon.seats.record import seat_at_end, usage_at_end
from carpool.daemon.shims.sessions import Session, SessionServer
from carpool.daemon.shims.spawn import send_start, spawn_shim
from carpool.daemon.system.clock import wall_us
from carpool.daemon.system.pidwatch import PidWatch
from carpool.daemon.system.process_state import is_stopped
from carpool.devices.base import Device
from carpool.protocol import session as messages
from carpool.protocol.packets import MAX_FDS
from carpool.protocol.paths import Home

log = logging.getLogger(__name__)
RETRY_S = 1.0
FOREGROUND_TIMEOUT_S = 30.0


@dataclass(slots=True)
class Process:
    """The shim of one job."""

    session: Session | None = None
    watch: PidWatch | None = None
    popen: subprocess.Popen[bytes] | None = None
    start_asked: bool = False  # the core wants the job to run
    start_sent: bool = False
    started: bool = False  # the core knows that it runs
    over: bool = False  # the core knows how it ended
    ended: ProcessExited | StartFailed | None = None  # heard of during a restart
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
        devices: Mapping[DeviceId, Device],
    ) -> None:
        self._home = home
        self._jobs = jobs
        self._store = store
        self._server = server
        self._channels = channels
        self._post = post
        self._threads = threads
        self._devices = devices
        self._of: dict[JobId, Process] = {}
        self._held: set[JobId] = set()  # something of their earlier attempt is left
        self.accepting = True  # false while the daemon ends all jobs before it stops
        self.recovered: Callable[[JobId], None] | None = None  # while a restarted daemon waits for its shims
        # What jobs on these devices have in their environment, unless they say otherwise.
        self.environment: Callable[[Sequence[DeviceId]], Mapping[str, str]] = lambda devices: {}
        server.on_register = self._registered
        server.on_message = self._message
        server.on_channel = self._channel

    def of(self, job: JobId) -> Process:
        return self._of.setdefault(job, Process())

    def shim_pid(self, job: JobId) -> int | None:
        session = self.of(job).session
        return None if session is None else session.pid

    def start(self, job: Job) -> None:
        """`StartJob`: let a registered shim start the job, or spawn a shim first."""
        if not self.accepting:
            return  # the next daemon will
        process = self.of(job.id)
        process.start_asked = True
        if job.id in self._held:
            return
        if process.session is not None:
            self._send_start(job, process)
        elif job.spec.foreground:
            asyncio.get_running_loop().call_later(FOREGROUND_TIMEOUT_S, self._foreground_missing, job)
        else:
            self._spawn(job, process)

    def hold(self, job: JobId) -> None:
        """Its next attempt is not to begin before `release`."""
        self.forget(job, "its attempt is over")
        self._held.add(job)

    def release(self, number: JobId) -> None:
        """Nothing of the earlier attempt is left."""
        self._held.discard(number)
        job = self._jobs.live.get(number)
        if job is None or not self.of(number).start_asked:
            return
        if job.cancelled:
            self._is_over(self.of(number), StartFailed(number, "it was cancelled between two attempts"))
        else:
            self.start(job)

    def signal(self, job: Job, number: int) -> None:
        """To all processes of the job; kept for a shim that has not registered yet."""
        process = self.of(job.id)
        if process.session is not None and not process.session.closed:
            process.session.send(messages.Signal(number))
        elif job.spec.foreground and process.session is None and not process.started and not self.lives(job.id):
            # Ctrl-C in the first moments of `carpool run`: nobody will come any more, and others wait for its device.
            self._is_over(process, StartFailed(job.id, "it was cancelled before its terminal appeared"))
        else:
            process.signals.append(number)

    def keep(self, job: JobId, names: dict[str, int], attached_pid: int | None) -> None:
        """Let the shim hold duplicates, so that the memory outlives the daemon."""
        session = self.of(job).session
        if session is None:
            return
        for begin in range(0, len(names), MAX_FDS):
            some = list(names)[begin : begin + MAX_FDS]
            session.send(messages.Keep(some, attached_pid), [names[name] for name in some])

    def quiet(self, job: JobId) -> bool:
        """Whether its shim has been sent everything."""
        session = self.of(job).session
        return session is None or session.closed or session.outbox.empty

    def drop(self, job: JobId, names: list[str]) -> None:
        session = self.of(job).session
        if session is not None and names:
            session.send(messages.Drop(names))

    def take(self, job: JobId, bank: str, store: str) -> bool:
        """Let the shim move the job's memory: the names of what it keeps.  The answer goes to `Offloads.taken`.

        False if it cannot: Ctrl-Z in a terminal stops the job and its shim.
        """
        session = self.of(job).session
        if session is None or session.closed or is_stopped(session.pid, session.uid):
            return False
        session.send(messages.Take(bank, store))
        return True

    def forget(self, job: JobId, text: str) -> None:
        """The job has ended; a shim that still waits for its start is sent away with ``text``."""
        process = self._of.pop(job, None)
        if process is None:
            return
        if process.session is not None:
            if not process.start_sent:
                process.session.send(messages.Refused(text))
            self._server.drop(process.session)
        if process.popen is None and process.watch is not None:
            process.watch.stop()  # a shim of our own is still to be collected

    def close(self) -> None:
        for process in self._of.values():
            if process.watch is not None:
                process.watch.stop()

    # Registration and messages

    def _registered(self, session: Session, message: messages.Register, fds: list[int]) -> None:
        job = self._jobs.live.get(message.job)
        refusal = self._refusal(session, job, fds, message.attempt)
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
        in_time = self._channels.open(job, fds, message)
        self._catch_up(job, process, message)
        if not in_time:
            log.error("job %d came back too late, or from another version of Carpool, with memory in use", job.id)
            session.send(messages.Signal(signal.SIGKILL))

    def _refusal(self, session: Session, job: Job | None, fds: list[int], attempt: int) -> str:
        if job is None:
            return "this daemon knows no such job, or it has ended"
        if attempt != job.attempt:
            return f"attempt {attempt} of the job is over"
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
            case messages.Taken(error, size):
                self._channels.offloads.taken(job, error, size)
            case messages.Exited(code, number, host_memory):
                self._is_over(process, exited(job.id, code, number, host_memory))

    def _channel(self, session: Session, message: messages.Channel, fd: int) -> None:
        job = self._jobs.live.get(session.job or 0)
        if job is None:
            os.close(fd)
        else:
            self._channels.bring(job, message.name, fd)

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
        if self.recovered is not None:
            process.ended = event  # `deliver` will tell the core, which does not know the job yet
            return
        if process.over:
            return
        process.over = True
        self._channels.process_ended(event.job)
        self._post(self._explained(event))

    def _explained(self, event: ProcessExited | StartFailed) -> ProcessExited | StartFailed:
        """What its runtime or its log says of a failure; its seat has been given back by now."""
        job = self._jobs.live.get(event.job)
        if job is None or isinstance(event, StartFailed) or not event.code:
            return event
        files = self._home.job(job.id, job.attempt)
        return dataclasses.replace(event, out_of_memory=ran_out(job.out_of, files, job.owner))

    # Spawning

    def _spawn(self, job: Job, process: Process) -> None:
        if job.id not in self._jobs.live or process.popen is not None:  # cancelled while a full disk made us wait
            return
        try:
            process.popen = spawn_shim(self._home, job)
        except OSError as error:
            if disk_full(error):
                log.error("job %d waits for room on the disk: %s", job.id, error)
                asyncio.get_running_loop().call_later(RETRY_S, self._spawn, job, process)
            else:
                self._is_over(process, StartFailed(job.id, f"cannot start its supervisor: {error}"))
            return
        if process.popen is not None:  # else one lives already and will register
            self._watch(job.id, process, process.popen.pid)

    def _send_start(self, job: Job, process: Process) -> None:
        if process.session is not None:
            assert job.device is not None  # where the core has told it to start
            process.start_sent = True
            names = (job.device, *job.further)
            devices = [self._devices[name] for name in names]
            send_start(process.session, job, self._threads, devices, self.environment(names))

    def _foreground_missing(self, job: Job) -> None:
        if job.id in self._jobs.live and self.of(job.id).session is None:
            text = f"its terminal did not appear within {FOREGROUND_TIMEOUT_S:.0f} s"
            self._is_over(self.of(job.id), StartFailed(job.id, text))

    # Ends

    def _watch(self, job: JobId, process: Process, pid: int) -> None:
        if process.watch is None:
            process.watch = PidWatch(pid, lambda: self._shim_gone(job, process))

    def _shim_gone(self, job_id: JobId, process: Process) -> None:
        if process.popen is not None:
            process.popen.wait()  # it has ended: this only collects it
        job = self._jobs.live.get(job_id)
        if job is not None and not process.over:
            self.settle(job)

    def deliver(self, job: Job) -> None:
        """After a restart the core knows the job: tell it how it has ended meanwhile, if it has."""
        process = self.of(job.id)
        if process.ended is not None:
            self._is_over(process, process.ended)
        elif not self.lives(job.id):
            self.settle(job)

    def settle(self, job: Job) -> None:
        """No shim lives: find out how the job ended and tell the core."""
        process = self.of(job.id)
        files = self._home.job(job.id, job.attempt)
        record = read_exit(files, job.owner)
        if record is not None and job.seated is None:
            job.usage = usage_at_end(record.seat) or job.usage
            seat = seat_at_end(record.seat)
            job.out_of = job.out_of if seat is None else seat.get("out_of_memory")
        if record is not None and record.text:
            self._is_over(process, StartFailed(job.id, record.text))
        elif record is not None:
            self._is_over(process, exited(job.id, record.code, record.signal, record.host_memory))
        elif job.spec.foreground and job.phase is JobPhase.QUEUED:
            job.cancelled = process.over = True
            if self.recovered is None:  # else the end of the restart does it
                self._post(CancelRequested(job.id))
        elif job.spec.foreground and not process.started:
            self._is_over(process, StartFailed(job.id, "its terminal went away before it started"))
        elif process.started or files.started.exists():
            log.error("the shim of job %d is gone without a trace of how the job ended", job.id)
            self._is_over(process, ProcessExited(job.id))
        else:
            self._is_over(process, StartFailed(job.id, "its supervisor ended before it could start the job"))

    def lives(self, job: JobId) -> bool:
        """Whether a shim of the job holds its lock."""
        return shim_lives(self._home.job(job))


def exited(job: JobId, code: int | None, number: int | None, host_memory: bool) -> ProcessExited:
    """``host_memory``: the kernel has ended a process of its control group meanwhile: the job's, or another one."""
    note = "the kernel has ended a process of its control group for want of host memory" if host_memory else ""
    return ProcessExited(job, code, number, note=note)
