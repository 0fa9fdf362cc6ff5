"""Processes of Carpool in which chosen system calls fail: ``python inject.py nursery|shim|foreground ARGUMENTS``.

The *nursery* loads the daemon's code once, and forks a daemon for each request over a socket: loading takes ten times
as long as all else that a daemon does before it serves.

Everything through which Carpool's Python code makes system calls is wrapped before Carpool is imported; the product has
no hook for it.  A call is known by its name and its *site*, the innermost line of Carpool that it comes from.  The file
that ``CARPOOL_TEST_FAULTS`` names says which calls fail, and where all calls are noted.  A shim of an injected daemon
is injected, too.  Standard library only, since a shim has nothing else.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import fcntl
import gc
import io
import json
import mmap
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

PLAN = "CARPOOL_TEST_FAULTS"
HERE = os.path.abspath(__file__)  # noqa: PTH100 - a shim's start-up is measured in milliseconds
PACKAGE = "/src/carpool/"
_open, _os_open, _append = open, os.open, os.write


class Faults:
    """What is to fail in this process, and what has been called so far.

    A call is counted by process, stage, name and site.  ``process``: "daemon 1", "daemon 2" after a restart,
    "shim JOB.ATTEMPT", "child JOB.ATTEMPT" between a shim's fork and the job's program.
    """

    def __init__(self, process: str, plan_file: str) -> None:
        with _open(plan_file) as file:
            plan = json.load(file)
        self.process, self.stage = process, ""
        self._pid = os.getpid()
        self._trace = _os_open(plan["trace"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._planned = {tuple(fault["where"]): fault["kind"] for fault in plan["faults"]}
        self._counts: Counter[tuple[str, str, str, str]] = Counter()
        self._gate = threading.RLock()
        self._library = ctypes.CDLL(None)
        if process.startswith("daemon") and hasattr(self._library, "carpool_test_io_begin"):
            self._plan_library(plan["trace"])
        self.enter("start")

    def _plan_library(self, trace: str) -> None:
        """What SQLite calls is counted, and fails, in `preload.c`."""
        for (process, stage, name, site, number), kind in self._planned.items():
            if process == self.process and name.startswith("sqlite"):
                error = -1 if kind == "short" else getattr(errno, kind)
                self._library.carpool_test_io_fail(*(text.encode() for text in (stage, name, site)), number, error)
        self._library.carpool_test_io_begin(self.process.encode(), trace.encode())

    def enter(self, stage: str) -> None:
        """Calls of this stage are counted anew."""
        self.stage = stage
        if hasattr(self._library, "carpool_test_io_stage"):
            self._library.carpool_test_io_stage(stage.encode())

    def due(self, name: str) -> str | None:
        """Count a call; the kind of fault that it is to have, if any."""
        site = _site()
        if site is None:
            return None
        process = self.process if os.getpid() == self._pid else self.process.replace("shim", "child")
        with self._gate:
            key = (process, self.stage, name, site)
            self._counts[key] += 1
            kind = self._planned.get((*key, self._counts[key]))
        line = json.dumps([*key, self._counts[key], kind])
        _append(self._trace, line.encode() + b"\n")
        return kind


def _site() -> str | None:
    """The innermost line of Carpool, and through which function of a library it makes the call."""
    frame, via = sys._getframe(2), ""
    while frame is not None:
        path = frame.f_code.co_filename
        at = path.find(PACKAGE)
        if "/logging/" in path:
            return "the log"
        if at >= 0:
            return f"{path[at + len(PACKAGE) :]}:{frame.f_lineno} {frame.f_code.co_name}{via}"
        if path != HERE and not via:
            via = f" via {os.path.basename(path)} {frame.f_code.co_name}"  # noqa: PTH119
        frame = frame.f_back  # type: ignore[assignment]
    return None


def failure(kind: str) -> Exception:
    if kind == "no thread":
        return RuntimeError("can't start new thread")
    number = getattr(errno, kind)
    return OSError(number, os.strerror(number))


faults: Faults | None = None


def due(name: str) -> str | None:
    """Nothing fails in the nursery itself, nor what has no name."""
    return None if faults is None or not name else faults.due(name)


def wrapped(name: str | Callable[..., str], call: Any, *, data: int = 1) -> Any:
    """``call``, which fails when that is due; its name may depend on its arguments, of which ``data`` can be halved."""

    def wrapper(*arguments: Any, **options: Any) -> Any:
        kind = due(name if isinstance(name, str) else name(*arguments, **options))
        if kind == "short":
            return call(*arguments[:data], _half(arguments[data]), *arguments[data + 1 :], **options)
        if kind is not None:
            raise failure(kind)
        return call(*arguments, **options)

    return wrapper


def _half(data: Any) -> Any:
    """The first half of what is to be written, or of how much."""
    return max(1, data // 2) if isinstance(data, int) else memoryview(data)[: max(1, len(data) // 2)]


# --- what makes system calls ------------------------------------------------------------------------------------------

OS = (
    *("write", "pwrite", "read", "pread", "fsync", "ftruncate", "posix_fallocate", "dup", "pipe", "pipe2"),
    *("memfd_create", "pidfd_open", "mkdir", "rename", "replace", "unlink", "rmdir", "chmod", "chown", "fchown"),
    *("stat", "lstat", "fstat", "listdir", "scandir", "lseek", "fork", "dup2", "chdir"),
)
SOCKET = ("connect", "bind", "listen", "send", "sendmsg", "recv", "recv_into", "getsockopt", "setsockopt")


def wrap_os() -> None:
    for name in OS:
        call = getattr(os, name)
        replacement = wrapped(name, call)
        setattr(os, name, replacement)
        for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if call in able:
                able.add(replacement)
    os.sendfile = wrapped("sendfile", os.sendfile, data=3)
    os.open = wrapped(_opening, os.open)
    for name in ("fcntl", "flock"):
        setattr(fcntl, name, wrapped(name, getattr(fcntl, name)))
    resource.prlimit = wrapped("prlimit", resource.prlimit)


def _opening(_path: Any, flags: int, *_: Any, **__: Any) -> str:
    return "open to write" if flags & os.O_CREAT else "open"


def wrap_sockets() -> None:
    for name in SOCKET:
        setattr(socket.socket, name, wrapped(name, getattr(socket.socket, name)))
    socket.socket.__init__ = wrapped(_new_socket, socket.socket.__init__)  # type: ignore[method-assign]
    socket.socket.accept = wrapped("accept", socket.socket.accept)  # type: ignore[method-assign]
    socket.socket.recvmsg = _recvmsg(socket.socket.recvmsg)  # type: ignore[method-assign]
    socket.socketpair = wrapped("socketpair", socket.socketpair)


def _new_socket(*arguments: Any, **options: Any) -> str:
    """Nothing of the kernel is asked for where there is a descriptor already."""
    return "socket" if options.get("fileno") is None and len(arguments) < 5 else ""


def _recvmsg(call: Any) -> Any:
    """A process without free descriptors gets the packet without those that came with it (recvmsg(2), MSG_CTRUNC)."""

    def wrapper(self: socket.socket, *arguments: Any) -> Any:
        kind = due("recvmsg")
        if kind not in (None, "no descriptors"):
            raise failure(str(kind))
        data, ancillary, flags, address = call(self, *arguments)
        if kind is None or not ancillary:
            return data, ancillary, flags, address
        for _, _, part in ancillary:
            for fd in memoryview(part[: len(part) // 4 * 4]).cast("i"):
                os.close(fd)
        return data, [], flags | socket.MSG_CTRUNC, address

    return wrapper


class FileIO(io.FileIO):
    """The files behind `open`."""

    def readinto(self, buffer: Any) -> Any:
        self._look("read")
        return super().readinto(buffer)

    def readall(self) -> Any:
        self._look("read")
        return super().readall()

    def read(self, size: int | None = -1) -> Any:
        self._look("read")
        return super().read(-1 if size is None else size)

    def write(self, data: Any) -> int:
        kind = self._look("write", "short")
        return super().write(data if kind is None else _half(data))

    def _look(self, name: str, *allowed: str) -> str | None:
        kind = due(name)
        if kind is not None and kind not in allowed:
            raise failure(kind)
        return kind


def open_(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    """As the built-in one, on a `FileIO` of ours."""
    if not isinstance(file, int):
        kind = due("open to write" if set(mode) & set("wax") else "open")
        if kind is not None:
            raise failure(kind)
    raw = FileIO(file, mode.replace("t", "").replace("b", ""), closefd, opener)
    if buffering == 0:
        return raw
    buffered: Any = io.BufferedRandom if raw.readable() and raw.writable() else io.BufferedWriter
    buffered = io.BufferedReader if not raw.writable() else buffered
    if "b" in mode:
        return buffered(raw)
    return io.TextIOWrapper(buffered(raw), encoding, errors, newline, line_buffering=buffering == 1)


class Mmap(mmap.mmap):
    def __new__(cls, *arguments: Any, **options: Any) -> Mmap:
        kind = due("mmap")
        if kind is not None:
            raise failure(kind)
        return super().__new__(cls, *arguments, **options)


def wrap_files() -> None:
    builtins.open = io.open = open_
    mmap.mmap = Mmap  # type: ignore[misc]


def wrap_processes() -> None:
    subprocess._fork_exec = wrapped("fork", subprocess._fork_exec)  # type: ignore[attr-defined]
    threading.Thread.start = wrapped("thread", threading.Thread.start)  # type: ignore[method-assign]
    subprocess.Popen = Popen  # type: ignore[misc]


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """Shims are injected, too."""

    def __init__(self, command: Any, *arguments: Any, **options: Any) -> None:
        if len(command) > 3 and str(command[3]).endswith("/runtime/shim/__main__.py"):
            command = [*command[:3], HERE, "shim", *command[3:]]
            passed = {name: value for name, value in os.environ.items() if name == PLAN}
            options["env"] = options["env"] | passed
        super().__init__(command, *arguments, **options)


# --- the programs -----------------------------------------------------------------------------------------------------


def run_nursery(path: str) -> int:
    """Until it is killed; in each daemon that it has forked, what that daemon returns."""
    from carpool.daemon import __main__ as daemon

    report_readiness(daemon)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()  # modules are no garbage of any daemon
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            return look_after(connection, daemon)
        connection.close()


def look_after(connection: socket.socket, daemon: Any) -> int:
    """Tell who asked the daemon's process number, and how it has ended."""
    text, fds, _, _ = socket.recv_fds(connection, 65536, 2)
    asked = json.loads(text)
    pid = os.fork()
    if pid == 0:
        connection.close()
        return daemon.main(become_daemon(asked, *fds))
    for fd in fds:
        os.close(fd)
    connection.send(b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    connection.send(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def become_daemon(asked: dict[str, Any], ready_fd: int, stderr: int) -> list[str]:
    """Its arguments."""
    null = os.open(os.devnull, os.O_RDWR)
    for source, target in ((null, 0), (null, 1), (stderr, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(stderr)
    os.environ[PLAN] = asked["plan"]
    begin(asked["process"], asked["plan"])
    return [*asked["arguments"], "--ready-fd", str(ready_fd)]


def report_readiness(daemon: Any) -> None:
    """What fails after that fails in a daemon that serves."""
    tell = daemon.Ready.tell

    def told(ready: Any, message: Any) -> None:
        tell(ready, message)
        if faults is not None:
            faults.enter("run")

    daemon.Ready.tell = told


def run_shim(path: str, *arguments: str) -> int:
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")
    return 0


def run_in_foreground(home: str, job: str) -> int:
    """As `carpool run` does, from the job's submission on."""
    from carpool.runtime.shim.__main__ import JobRefused, supervise

    try:
        return supervise(home, int(job), foreground=True)
    except (JobRefused, OSError) as error:
        print(error, file=sys.stderr)
        return 1


def begin(process: str, plan: str) -> None:
    global faults
    faults = Faults(process, plan)


def main(kind: str, *arguments: str) -> int:
    if kind == "shim":
        begin(f"shim {arguments[2]}.{arguments[3]}", os.environ[PLAN])
    elif kind == "foreground":
        begin(f"shim {arguments[1]}.1", os.environ[PLAN])
    for wrap in (wrap_os, wrap_sockets, wrap_files, wrap_processes):
        wrap()
    return {"nursery": run_nursery, "shim": run_shim, "foreground": run_in_foreground}[kind](*arguments)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
