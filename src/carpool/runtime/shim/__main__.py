"""The shim: one small process per job, between the daemon and the job's main process, which outlives the daemon.

The shim keeps duplicates of all descriptors whose loss would end the job (the job channel, the seat table, the job's
memory), starts the job when the daemon says so, forwards signals, and records how the job ended.  See
docs/internals/processes.md.

Run by the daemon as ``python -I -S .../shim/__main__.py HOME JOB ATTEMPT LOCK_FD [UID GID GROUPS]``; called by
``carpool run`` as `supervise`.  Standard library only, and few imports, because its start delays the start of every
job.
"""

# ruff: noqa: PTH100, PTH104, PTH116, PTH118, PTH120 - pathlib would cost a third of the start-up time

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import closing

if __name__ == "__main__":  # run by path in isolated mode: make the package importable
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path[:0] = [os.path.dirname(package)]

from carpool.runtime.shim.attach_socket import AttachSocket
from carpool.runtime.shim.child import Program, become_subreaper, children_now, kill_all, reap, signal_all, spawn
from carpool.runtime.shim.daemon_link import DaemonLink
from carpool.runtime.shim.offload_stopped_job import Taking
from carpool.runtime.shim.oom_score import JOB, SHIM, OomScore, kill_counter, kills_in_group
from carpool.runtime.shim.streams import LOOK_S, JobLog, Streams
from carpool.runtime.user_process import Limits, become, begin_session_keyring, login_limits, raise_hard_limits

RECONNECT_MS = 100
#: Attempts to write how a job has ended; after these it is enough that the daemon has been told.
TRIES = 30
#: Errors of files that may be temporary, unlike the loss of the directory.
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class JobRefused(Exception):
    """The daemon does not want this job to run; the text is for users."""


class Shim:
    """The supervisor of one attempt of a job, from the daemon's `start` to ``exit.json``.

    The shim reconnects to each new daemon, and waits in one `poll` for the daemon, the job, signals and the attach
    socket.
    """

    def __init__(
        self, home: str, job: int, score: OomScore, *, foreground: bool, attempt: int = 1, limits: Limits | None = None
    ) -> None:
        self._home = home
        self._job = job
        self._score = score
        self._limits = limits or {}
        self._directory = os.path.join(home, "jobs", str(job))
        self._suffix = "" if attempt == 1 else f".{attempt}"
        self._foreground = foreground
        # In a terminal the job must be in this process's group, to which the terminal gives its input and signals.
        # Elsewhere a signal to that group (such as a notebook's stop button sends) would arrive twice: directly, and
        # forwarded.
        self._in_our_group = foreground and _has_terminal()
        self._spare = children_now()
        self._link = DaemonLink(os.path.join(home, "session.sock"), job, attempt)
        self._child: int | None = None
        self._child_fd: int | None = None
        self._status: int | None = None  # wait status of the child
        self._counter: str | None = None  # file that counts the kernel's out-of-memory kills in the control group
        self._kills: int | None = None  # that count before the job started
        self._door: AttachSocket | None = None
        self._log: JobLog | None = None  # only if the log has a limit
        self._streams: Streams | None = None
        self._end: dict[str, object] | None = None
        self._signals, self._wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._postponed: dict[str, object] | None = None  # a start that waits for room on the disk
        self._taking: Taking | None = None  # a copy in progress, made piece by piece between other work
        self._orphaned = False  # the daemon does not know this job: reconnecting is useless

    def run(self) -> dict[str, object]:
        """Supervise until the job has ended; return the content of `exit.json`."""
        become_subreaper()
        old = self._catch_signals()
        try:
            while self._end is None:
                self._round()
        finally:
            self._release_signals(old)
            if self._door is not None:
                self._door.close()
        return self._end

    def _round(self) -> None:
        """Wait for events once; after an error, pause so that the next round tries again: the shim must not end."""
        try:
            if self._link.socket is None and not self._orphaned and not self._link.connect():
                self._check_home()
            if self._child is not None and self._child_fd is None:
                self._child_fd = os.pidfd_open(self._child)
            self._wait()
        except OSError:
            select.poll().poll(RECONNECT_MS)

    def _wait(self) -> None:
        poll, sources, wait_ms = select.poll(), self._sources(), self._wait_ms()
        if self._door is not None:
            self._door.jammed = False
        for fd in (*sources, *([self._child_fd] if self._child_fd else [])):
            poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(wait_ms)}
        if self._child_fd in ready:
            self._child_ended()
            return
        for fd, handle in sources.items():
            if fd in ready:
                handle()
        self._go_on(heard=bool(ready))

    def _sources(self) -> dict[int, Callable[[], None]]:
        """Return the descriptors to listen to, in the order in which they are handled, and how."""
        found: dict[int, Callable[[], None]] = {self._signals: self._handle_signals}
        if self._link.socket is not None:
            found[self._link.socket.fileno()] = lambda: self._message(self._link.receive())
        if self._door is not None and not self._door.jammed:
            found[self._door.fileno()] = self._admit
        return found

    def _wait_ms(self) -> int | None:
        if self._taking is not None:
            return 0
        alone = self._link.socket is None and not self._orphaned
        if alone or self._postponed is not None or (self._door is not None and self._door.jammed):
            return RECONNECT_MS
        return None if self._log is None else int(LOOK_S * 1000)

    def _admit(self) -> None:
        if self._door is not None and (channel := self._door.admit()) is not None:
            self._link.bring(channel)

    def _go_on(self, *, heard: bool) -> None:
        """Continue work that takes long or recurs.  ``heard``: an event has been handled in this round."""
        if self._postponed is not None and not heard:
            self._start(self._postponed)
        if self._taking is not None:
            self._take_on(self._taking)
        if self._log is not None:
            self._log.look()

    def _check_home(self) -> None:
        """Check that the home exists while there is no daemon.

        Without the home no daemon will come: a job that has not started stops waiting.
        """
        try:
            os.stat(self._directory)
        except (FileNotFoundError, NotADirectoryError):
            self._orphan()
            if self._child is None:
                raise JobRefused(f"{self._directory} is gone") from None

    def _orphan(self) -> None:
        """Give up on the daemon: processes that wait for a seat, or ask for one later, go on without Carpool."""
        self._orphaned = True
        self._link.hang_up()
        if self._door is not None:
            self._door.close()
            self._door = None

    # Messages of the daemon

    def _message(self, message: dict[str, object] | None) -> None:
        if message is None:
            return
        kind = message["type"]
        if kind == "start":
            self._start(message)
        elif kind == "signal":
            self._pass_on(int(message["signal"]))  # type: ignore[call-overload]
        elif kind == "take" and self._taking is None:  # one in progress serves an earlier daemon's request, too
            self._taking = Taking(self._link.kept(str(message["bank"])), self._link.kept(str(message["store"])))
        elif kind == "refused":
            self._orphan()
            if self._child is None:
                raise JobRefused(str(message["text"]))

    def _start(self, message: dict[str, object]) -> None:
        if self._child is not None:
            return
        self._postponed = None
        # Imported late, as not every shim gets here.
        from carpool.runtime.launch import LaunchError, job_environment

        try:
            # From here on "lock free and no exit.json" means lost; before, it means safe to start again.
            self._write("started" + self._suffix, b"")
            threads, link = message["threads"], self._link
            about = {"home": self._home, "job": self._job, "job_fd": link.job_fd, "threads": threads}
            about |= {"cuda_device": message.get("cuda_device", ""), "engine": message.get("keeps_all", False)}
            env = job_environment(message["env"], **about)  # type: ignore[arg-type]
            self._door = self._door or AttachSocket(self._directory)
            self._streams = self._open_streams(message)
            self._counter = kill_counter()
            self._kills = kills_in_group(self._counter)
            cores = bool(message.get("core_dumps", True))
            program = Program(message["argv"], str(message["cwd"]), env)  # type: ignore[arg-type]
            how = {"own_group": not self._in_our_group, "cores": cores, "limits": self._limits}
            with self._score.raised_for_children(JOB):
                self._child = spawn(program, link.job_fd, self._streams, **how)  # type: ignore[arg-type]
        except (OSError, LaunchError) as error:
            if _disk_full(error):
                self._postponed = message
                return
            self._finish(
                {"code": 127, "signal": None, "text": str(error)}, {"type": "start_failed", "text": str(error)}
            )
            return
        os.close(link.job_fd)
        link.child_pid = self._child
        link.send({"type": "started", "pid": self._child})

    def _open_streams(self, message: dict[str, object]) -> Streams | None:
        """Return the streams that the job writes to; None: those of its terminal."""
        if self._foreground:
            return None
        path, limit = os.path.join(self._directory, "log" + self._suffix), message.get("log_limit")
        if limit is not None and self._log is None:
            self._log = JobLog(path, int(limit))  # type: ignore[call-overload]
        own = message.get("output"), message.get("error")
        return Streams(path, *own, first=not self._suffix)  # type: ignore[arg-type]

    def _take_on(self, taking: Taking) -> None:
        """Copy the next piece of the job's memory."""
        if taking.step(self._link.seat):
            self._taking = None
            self._link.send({"type": "taken", "error": taking.error, "bytes": taking.bytes})

    # The end

    def _child_ended(self) -> None:
        assert self._child is not None
        # A job is all its processes: none may go on computing in memory that is given to other jobs now.  The main
        # process is collected last: until then no other process, and no group, can have its number.
        kill_all(self._leader(), self._spare)
        if self._status is None:
            _, self._status = os.waitpid(self._child, 0)
        if self._streams is not None:
            self._streams.keep_end()
        if self._log is not None:
            self._log.close()
            self._log = None
        if os.WIFSIGNALED(self._status):
            end: dict[str, object] = {"code": None, "signal": os.WTERMSIG(self._status)}
            kills = kills_in_group(self._counter) if end["signal"] == signal.SIGKILL else None
            if kills is not None and self._kills is not None and kills > self._kills:
                end["host_memory"] = True
        else:
            end = {"code": os.WEXITSTATUS(self._status), "signal": None}
        self._finish(end, {"type": "exited", **end})

    def _finish(self, end: dict[str, object], message: dict[str, object]) -> None:
        """Write down how the job ended and tell the daemon.

        If writing fails the daemon must be told, however long that takes.  A daemon may be killed before it has read
        the message, so writing is tried for a while longer.
        """
        told, tries, data = False, 0, json.dumps({**end, "seat": self._link.seat().hex()}).encode()
        while True:
            try:
                self._write("exit.json" + self._suffix, data)
                break
            except OSError as error:
                told, tries = (told and self._link.alive()) or self._link.send(message), tries + 1
                if self._orphaned or error.errno not in _PASSING or (told and tries >= TRIES):
                    break
            select.poll().poll(RECONNECT_MS)
            if not told:
                self._link.connect()
        if not told:
            self._link.send(message)
        self._end = end

    def _write(self, name: str, data: bytes) -> None:
        """Write a file in the job's directory.  Raises OSError, for example when the disk is full."""
        _write_file(self._directory, name, data)

    # Signals

    def _leader(self) -> int | None:
        return None if self._in_our_group else self._child

    def _pass_on(self, number: int) -> None:
        if self._child is None:
            end: dict[str, object] = {"code": None, "signal": number}
            self._finish(end, {"type": "exited", **end})
            return
        self._signal_all(number, self._child)

    def _signal_all(self, number: int, child: int) -> None:
        """Signal the job; where /proc cannot be listed (no descriptor is left), its main process and that one's group.

        Until the main process has been waited for, its number is no other's.
        """
        try:
            signal_all(number, self._leader(), self._spare)
        except OSError:
            if self._status is None:
                (os.killpg if self._leader() else os.kill)(child, number)

    def _catch_signals(self) -> dict[int, object]:
        numbers = (*FORWARDED, signal.SIGINT, signal.SIGCHLD)
        # Set the wake-up pipe first: a signal between the two calls must not be lost.
        self._old_wakeup = signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        return {int(number): signal.signal(number, lambda *_: None) for number in numbers}

    def _release_signals(self, old: dict[int, object]) -> None:
        signal.set_wakeup_fd(self._old_wakeup)
        for number, handler in old.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle_signals(self) -> None:
        for number in os.read(self._signals, 4096):
            if number == signal.SIGCHLD:
                if self._child is not None:
                    reap(self._spare | {self._child})
            elif self._child is None:
                if self._foreground:
                    raise JobRefused("interrupted before the job started")
            elif number in FORWARDED or (number == signal.SIGINT and not _from_terminal()):
                self._signal_all(number, self._child)


def _write_file(directory: str, name: str, data: bytes) -> None:
    """Write a file durably and completely, or not at all.  Raises OSError."""
    path = os.path.join(directory, name)
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        while data:  # an almost full disk accepts only the first part
            data = data[os.write(fd, data) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(path + ".new", path)


def _disk_full(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _has_terminal() -> bool:
    """Whether this process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _from_terminal() -> bool:
    """Whether a SIGINT came from the terminal, which has then sent it to the job as well."""
    try:
        fd = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(fd)


def supervise(home: os.PathLike[str] | str, job: int, *, foreground: bool) -> int:
    """Run job number ``job`` as the daemon says and return its exit code (128 + n for signal n).

    Called in the main thread.  Raises `JobRefused` if the job is not to run (cancelled, unknown, interrupted), and
    OSError with a text for users if it cannot be started.
    """
    directory = os.path.join(os.fspath(home), "jobs", str(job))
    lock = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with closing(OomScore()) as score:
            end = Shim(os.fspath(home), job, score, foreground=foreground).run()
    finally:
        os.close(lock)
    if end.get("text"):
        raise OSError(str(end["text"]))
    number = end["signal"]
    return 128 + int(number) if number is not None else int(end["code"])  # type: ignore[call-overload,no-any-return]


def _become(uid: int, gid: int, groups: list[int]) -> Limits:
    """Drop root's privileges for good and return the job's limits, which do not apply to the shim and its files.

    Raises OSError.
    """
    import carpool.runtime.launch  # noqa: F401 - its file may be out of reach afterwards

    limits = login_limits(uid, groups)
    raise_hard_limits(limits)
    become(uid, gid, groups)
    return limits


def main(arguments: list[str]) -> int:
    """Supervise one attempt, with the arguments in the module's docstring.  Returns 1 if the daemon refuses, else 0."""
    home, job, attempt, lock = arguments[0], *map(int, arguments[1:4])
    os.set_inheritable(lock, False)
    score = OomScore()
    score.raise_to(SHIM)  # while the process is root: the daemon's own score is lower
    try:
        limits = _of_owner(arguments[4:])
        Shim(home, job, score, foreground=False, attempt=attempt, limits=limits).run()
    except JobRefused:
        return 1
    except OSError as error:
        _not_begun(os.path.join(home, "jobs", str(job)), attempt, f"its supervisor cannot start: {error}")
    return 0


def _of_owner(owner: list[str]) -> Limits:
    """Become a process of the job's owner.  ``owner``: uid, gid and groups, or nothing.  Raises OSError."""
    if owner:
        return _become(int(owner[0]), int(owner[1]), [int(group) for group in owner[2].split(",")])
    if os.geteuid() == 0:  # root's job; jobs of an ordinary user's daemon have the keyring of that user's login
        begin_session_keyring()
    return {}


def _not_begun(directory: str, attempt: int, text: str) -> None:
    """Write the reason why the job did not start for the daemon; without this file the daemon reports it as unknown."""
    name = "exit.json" + ("" if attempt == 1 else f".{attempt}")
    with contextlib.suppress(OSError):
        _write_file(directory, name, json.dumps({"code": 127, "signal": None, "text": text}).encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
