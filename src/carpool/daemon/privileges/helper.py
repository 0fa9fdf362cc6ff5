"""The part of a daemon that stays root: ``python -I -S .../helper.py HOME UID SOCKET`` (`carpool up --user`).

The daemon's core runs as user UID and asks over SOCKET, a socketpair of packets, for what only root may do.  The core
serves untrusted users and may have been taken over, so its requests are limited to the table `OPERATIONS`:

- A user is never root and never the core's own user; a group is one that the user database gives the user.
- The three programs that are started become the user before they do anything else.
- A file is one of four in ``jobs/N``: opened with the rights of the user, never through a link or across a mount, never
  waiting, and only if it is a regular file of the user's.
- A directory is given to a user only while it belongs to the core, and is moved from ``jobs/N`` to ``removed/N`` only.
- A signal is one of three, for a process of which all uids are the user's.

Any invalid request is answered with an error.  When the core ends, the helper ends; shims go on in any case.  Standard
library only, one file, no thread: meant to be read by administrators who install Carpool (docs/decisions, number 52).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import pwd
import re
import signal
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]
SHIM, NOTIFIER = PACKAGE / "runtime" / "shim" / "__main__.py", PACKAGE / "runtime" / "notifier.py"
REMOVER = PACKAGE / "daemon" / "hooks" / "remove_trees.py"
FILES = re.compile(r"lock|(log|exit\.json|started)(\.[1-9][0-9]{0,9})?", re.ASCII)
SIGNALS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)
LARGEST_REQUEST, MOST_DIRECTORIES, LARGEST_NUMBER = 4096, 100, 2**63 - 1
NOBODY = 2**32 - 1  # the uid that stands for no user (setresuid(2))
NO_GROUP = 65534  # the group for operations that need no rights of a group
PR_SET_DUMPABLE = 4
CAPABILITY_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
#: CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, KILL, SETGID, SETUID, SYS_RESOURCE (capabilities(7))
CAPABILITIES = (0, 1, 2, 3, 5, 6, 7, 24)
OPENAT2 = 437
#: RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH (openat2(2))
RESOLVE = 1 | 2 | 4 | 8
_libc = ctypes.CDLL(None, use_errno=True)

Answer = tuple[dict[str, object], list[int]]  # descriptors are the caller's to close
OPERATION_NAMES = ("create", "spawn", "open", "environ", "signal", "aside", "remove", "notify")


class Helper:
    """Carries out the requests of one core.  ``home``: the core's home, ``core``: its uid."""

    def __init__(self, home: str, core: int) -> None:
        self._path = home
        self._core = core
        self._home = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._jobs = open_beneath(self._home, "jobs", os.O_DIRECTORY)

    def answer(self, request: bytes, fds: list[int]) -> Answer:
        """Carry out a request and return the answer.  ``fds`` came with the request."""
        try:
            fields = json.loads(request)
            operation = OPERATIONS.get(fields.pop("op"))
            if operation is None:
                raise ValueError("no such operation")
            return operation(self, fds=fds, **fields)
        except OSError as error:
            return {"errno": error.errno or errno.EPERM, "text": error.strerror or str(error)}, []
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            return {"errno": errno.EINVAL, "text": f"a request that makes no sense: {error}"}, []

    def create(self, *, fds: list[int], job: object, uid: object, gid: object) -> Answer:
        """CREATE: give ``jobs/N``, which the core has made, to the user."""
        user = self._user(uid)
        self._give(number(job), user, groups_of(user, gid)[0])
        return {}, []

    def spawn(self, *, fds: list[int], job: object, attempt: object, uid: object, gid: object) -> Answer:
        """SPAWN: start the job's shim, unless one lives; answer with its pid and pidfd."""
        place, which, user = number(job), number(attempt), self._user(uid)
        groups = groups_of(user, gid)
        self._give(place, user, groups[0])
        with ExitStack() as stack:
            lock = self._open(place, "lock", os.O_RDWR | os.O_CREAT, user, groups[0])
            stack.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return {"pid": None}, []
            return started(SHIM, [self._path, place, which, lock, user, groups[0], ",".join(map(str, groups))], [lock])

    def open(self, *, fds: list[int], job: object, name: object, uid: object) -> Answer:
        """OPEN_AS: open one of the job's files for reading."""
        if not isinstance(name, str) or not FILES.fullmatch(name):
            raise PermissionError(errno.EPERM, "no file of a job is called that")
        return {}, [self._open(number(job), name, os.O_RDONLY, self._user(uid), NO_GROUP)]

    def environ(self, *, fds: list[int], pid: object, uid: object) -> Answer:
        """ENVIRON: open the environment that a process was started with, with the user's rights."""
        process, user = number(pid), self._user(uid)
        with acting_as(user, ids(process)["Gid"][0]):
            return {}, [os.open(f"/proc/{process}/environ", os.O_RDONLY | os.O_CLOEXEC)]

    def signal(self, *, fds: list[int], uid: object, number: object) -> Answer:
        """SIGNAL: signal the process of the pidfd that came with the request."""
        (fd,), user = fds, self._user(uid)
        if type(number) is not int or number not in SIGNALS:
            raise PermissionError(errno.EPERM, "this signal is not sent")
        if set(ids(pid_of(fd))["Uid"]) != {user}:
            raise PermissionError(errno.EPERM, f"not a process of uid {user}")
        pid_of(fd)  # the process has not ended, so the uids read above are its own
        signal.pidfd_send_signal(fd, number)
        return {}, []

    def aside(self, *, fds: list[int], job: object) -> Answer:
        """ASIDE: rename ``jobs/N`` to ``removed/N``."""
        removed, name = open_beneath(self._home, "removed", os.O_DIRECTORY), str(number(job))
        try:
            os.rename(name, name, src_dir_fd=self._jobs, dst_dir_fd=removed)
        finally:
            os.close(removed)
        return {}, []

    def remove(self, *, fds: list[int], jobs: object) -> Answer:
        """REMOVE: start a process that empties ``removed/N`` of some jobs of one user, as that user."""
        if not isinstance(jobs, list) or not 1 <= len(jobs) <= MOST_DIRECTORIES:
            raise ValueError("not a list of jobs")
        with ExitStack() as stack:
            trees = [open_beneath(self._home, f"removed/{number(job)}", os.O_DIRECTORY, stack) for job in jobs]
            (owner,) = {os.fstat(tree).st_uid for tree in trees}
            user = self._user(owner)
            return started(REMOVER, [user, NO_GROUP, *trees], trees)

    def notify(self, *, fds: list[int], uid: object, gid: object) -> Answer:
        """NOTIFY: start a process of the user that hears from the core, over the given socket, what to send."""
        (fd,), user = fds, self._user(uid)
        return started(NOTIFIER, [fd, user, gid, ",".join(map(str, groups_of(user, gid)))], [fd])

    def _user(self, uid: object) -> int:
        """Return a uid for which operations are allowed.  Raises ValueError, PermissionError."""
        if type(uid) is not int or not 0 <= uid < NOBODY:
            raise ValueError("not the number of a user")
        if uid in (0, self._core):
            raise PermissionError(errno.EPERM, f"nothing is done for uid {uid}")
        return uid

    def _give(self, job: int, uid: int, gid: int) -> None:
        fd = open_beneath(self._jobs, str(job), os.O_DIRECTORY)
        try:
            owner = os.fstat(fd).st_uid
            if owner == self._core:
                os.fchown(fd, uid, gid)
            elif owner != uid:
                raise PermissionError(errno.EPERM, f"jobs/{job} belongs to uid {owner}")
        finally:
            os.close(fd)

    def _open(self, job: int, name: str, flags: int, uid: int, gid: int) -> int:
        with acting_as(uid, gid):
            fd = open_beneath(self._jobs, f"{job}/{name}", flags)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != uid or status.st_nlink != 1:
            os.close(fd)
            raise PermissionError(errno.EPERM, f"{name} is not a regular file of uid {uid} with a single name")
        return fd


OPERATIONS: dict[object, Callable[..., Answer]] = {name: getattr(Helper, name) for name in OPERATION_NAMES}


def number(value: object) -> int:
    """Return a valid number of a job, an attempt or a process.  Raises ValueError."""
    if type(value) is not int or not 1 <= value <= LARGEST_NUMBER:
        raise ValueError("not a number")
    return value


def groups_of(uid: int, gid: object) -> list[int]:
    """Return the user's groups, ``gid`` first.  Raises PermissionError if the user is not in ``gid``."""
    try:
        account = pwd.getpwuid(uid)
        groups = os.getgrouplist(account.pw_name, account.pw_gid)
    except KeyError:
        groups = [uid]  # without an account: the group of the same number
    if type(gid) is not int or gid not in groups:
        raise PermissionError(errno.EPERM, f"uid {uid} is not in group {gid}")
    return [gid, *sorted(set(groups) - {gid})]


def open_beneath(directory: int, path: str, flags: int, stack: ExitStack | None = None) -> int:
    """Open a path below a directory, never via a link or mount, never waiting; ``stack`` closes it.  Raises OSError."""
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC | (0 if flags & os.O_PATH else os.O_NONBLOCK)
    how = struct.pack("=QQQ", flags, 0o600 if flags & os.O_CREAT else 0, RESOLVE)
    fd: int = _libc.syscall(*map(ctypes.c_long, (OPENAT2, directory)), path.encode(), how, ctypes.c_size_t(len(how)))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if stack is not None:
        stack.callback(os.close, fd)
    return fd


@contextmanager
def acting_as(uid: int, gid: int) -> Iterator[None]:
    """Act as a user for files only (setfsuid(2)), without file capabilities; to other processes, remain root's."""
    try:
        for change, value in ((_libc.setfsgid, gid), (_libc.setfsuid, uid)):
            change(ctypes.c_uint32(value))
            if change(ctypes.c_uint32(NOBODY)) != value:  # changes nothing, and returns the present id
                raise PermissionError(errno.EPERM, f"cannot act as {uid}:{gid}")
        yield
    finally:
        _libc.setfsuid(0)
        _libc.setfsgid(0)


def drop_capabilities() -> None:
    """Drop all capabilities but those that the operations need, and all supplementary groups.  Raises OSError."""
    os.setgroups([])
    header, present = struct.pack("=II", CAPABILITY_VERSION, 0), ctypes.create_string_buffer(24)
    _libc.capget(header, present)  # in a container root may have fewer
    kept = struct.unpack("=6I", present)[1] & sum(1 << capability for capability in CAPABILITIES)
    if _libc.capset(header, struct.pack("=6I", kept, kept, 0, 0, 0, 0)) or _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "the helper cannot give up what it does not need")


def ids(pid: int) -> dict[str, list[int]]:
    """Read the user and group ids in /proc/PID/status: real, effective, saved and of files.  Raises OSError."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        lines = (line.partition(":") for line in file)
        return {name: [int(word) for word in rest.split()] for name, _, rest in lines if name in ("Uid", "Gid")}


def pid_of(pidfd: int) -> int:
    """Return the pid of a pidfd.  Raises ProcessLookupError if the process has ended, ValueError for no pidfd."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
        found = re.search(r"^Pid:\t(-?\d+)$", file.read(), re.MULTILINE)
    if found is None:
        raise ValueError("not a pidfd")
    if int(found[1]) <= 0:
        raise ProcessLookupError(errno.ESRCH, "the process has ended")
    return int(found[1])


def started(program: Path, arguments: list[object], fds: list[int]) -> Answer:
    """Start a process of root that becomes its user by itself: not every user may be able to read our interpreter."""
    command, null = [sys.executable, "-I", "-S", str(program), *map(str, arguments)], subprocess.DEVNULL
    files = {"stdin": null, "stdout": null, "stderr": null, "cwd": "/", "env": {"LANG": "C.UTF-8"}}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # otherwise `collect` could free the pid before pidfd_open
    try:
        process = subprocess.Popen(command, pass_fds=fds, start_new_session=True, **files)  # type: ignore[call-overload]
        return {"pid": process.pid}, [os.pidfd_open(process.pid)]
    finally:
        signal.signal(signal.SIGCHLD, collect)
        collect()


def collect(*_: object) -> None:
    """Collect children that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def serve(helper: Helper, core: socket.socket) -> None:
    """Answer requests until the core has closed its end."""
    while True:
        request, fds, _, _ = socket.recv_fds(core, LARGEST_REQUEST, 1)
        if not request:
            return
        answer, found = helper.answer(request, fds)
        with ExitStack() as stack:
            for fd in found:
                stack.callback(os.close, fd)
            for fd in fds:
                os.close(fd)
            socket.send_fds(core, [json.dumps(answer).encode()], found)


def main(home: str, uid: str, fd: str) -> None:
    """Run the helper.  Raises OSError, for example where the kernel has no openat2 (before Linux 5.6)."""
    os.umask(0o077)
    drop_capabilities()
    with socket.socket(fileno=int(fd)) as core:
        core.set_inheritable(False)
        helper = Helper(home, int(uid))
        signal.signal(signal.SIGCHLD, collect)
        core.send(b"{}")  # ready
        with suppress(ConnectionError):
            serve(helper, core)


if __name__ == "__main__":
    main(*sys.argv[1:])
