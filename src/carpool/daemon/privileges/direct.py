"""Operations with the daemon's own rights: root's, or those of an ordinary user, who then owns all jobs.

Files that users may have replaced are opened below a directory of the daemon's: never through a link or onto a mount.
A file system that a user has mounted there (FUSE) might never answer.  The kernel refuses to cross onto a mount before
it asks that file system anything, so these calls may be made in the daemon's loop.
"""

from __future__ import annotations

import fcntl
import functools
import logging
import os
import pwd
import signal
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from carpool.daemon.privileges.base import NOTIFIER, REMOVER, SHIM, Child, start_isolated
from carpool.daemon.privileges.helper import open_beneath
from carpool.daemon.system.processes import restore_file_limit
from carpool.protocol.paths import Home

log = logging.getLogger(__name__)


def open_below(directory: Path, path: Path, flags: int) -> int:
    """Open ``path``, which lies below ``directory``.  Raises OSError; EXDEV for a path on a mount."""
    try:
        if not has_openat2():
            return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        top = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return open_beneath(top, str(path.relative_to(directory)), flags)
        finally:
            os.close(top)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def owner_below(directory: Path, path: Path) -> int:
    """Return the owner of a directory.  Raises OSError, as `open_below` does."""
    fd = open_below(directory, path, os.O_PATH | os.O_DIRECTORY)
    try:
        return os.fstat(fd).st_uid
    finally:
        os.close(fd)


@functools.cache
def has_openat2() -> bool:
    """Return whether openat2 works: kernels before 5.6 lack it, and some containers forbid calls they do not know.

    Carpool runs there all the same: a file is opened without following a link at its end, and the directories above
    belong to the daemon except the last, which cannot be a link either.  Only mounts go unnoticed.
    """
    top = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        os.close(open_beneath(top, ".", os.O_PATH))
    except OSError as error:
        log.warning("no openat2 (%s): a user who mounts a file system on a job's files can delay the daemon", error)
        return False
    finally:
        os.close(top)
    return True


class DirectPrivileges:
    """As root every operation is done for the owner of the job; as an ordinary user the daemon has no other owners."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._root = os.geteuid() == 0

    @property
    def serves_others(self) -> bool:
        """Whether the daemon runs as root."""
        return self._root

    @property
    def suspends(self) -> bool:
        """Always True: the driver is asked with the daemon's own rights."""
        return True

    def why_not(self, uid: int) -> str:
        """Refuse no user: the rights suffice for all jobs that get here."""
        return ""

    def create_directory(self, job: int, owner: int, gid: int) -> None:
        """Make the directory; root gives it to its owner."""
        root = self._home.job(job).root
        with suppress(FileExistsError):
            root.mkdir(mode=0o700)
        if self._root and owner_below(self._home.jobs, root) != owner:
            os.chown(root, owner, gid)

    def open_owned(self, path: Path, owner: int) -> int:
        """Open the file, and check what it is."""
        with _closed_on_error(open_below(self._home.jobs, path, os.O_RDONLY)) as fd:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
                raise PermissionError(f"{path} is not a file of uid {owner}")
        return fd

    def spawn_shim(self, job: int, attempt: int, owner: int, gid: int) -> Child | None:
        """Start a shim that inherits the job's lock."""
        self.create_directory(job, owner, gid)
        lock = self._take_lock(job, owner)
        if lock is None:
            return None
        try:
            shim = start_isolated(SHIM, [str(self._home.root), job, attempt, lock, *self._who(owner, gid)], [lock])
            restore_file_limit(shim.pid)
            return Child(shim.pid, popen=shim)
        finally:
            os.close(lock)

    def _who(self, owner: int, gid: int) -> list[object]:
        """Return the user that a process is to become; empty if that is the daemon's own user."""
        return [owner, gid, ",".join(map(str, groups_of(owner, gid)))] if self._root and owner else []

    def _take_lock(self, job: int, owner: int) -> int | None:
        """Return a locked descriptor for the shim to inherit; None while a shim of the job lives.  Raises OSError."""
        path = self._home.job(job).lock
        with _closed_on_error(open_below(self._home.jobs, path, os.O_RDWR | os.O_CREAT)) as fd:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                text = "is not a regular file with a single name: the job's owner has replaced the lock"
                raise PermissionError(f"{path} {text}")
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return None
            if self._root:
                os.fchown(fd, owner, -1)
        return fd

    def signal(self, pidfd: int, owner: int, number: int) -> None:
        """Send the signal."""
        signal.pidfd_send_signal(pidfd, number)

    def environment(self, pid: int, owner: int) -> bytes:
        """Read the environment."""
        return Path(f"/proc/{pid}/environ").read_bytes()

    def set_aside(self, job: int) -> None:
        """Move the directory."""
        self._home.job(job).root.rename(self._home.removed / str(job))

    def spawn_remover(self, jobs: Sequence[int]) -> Child:
        """Start the process, which inherits the open directories."""
        with ExitStack() as stack:
            fds = [self._open_removed(job, stack) for job in jobs]
            status = os.fstat(fds[0])
            remover = start_isolated(REMOVER, [status.st_uid, status.st_gid, *fds], fds)
        return Child(remover.pid, popen=remover)

    def _open_removed(self, job: int, stack: ExitStack) -> int:
        """Open a removed directory; ``stack`` closes it.  Raises OSError."""
        path = self._home.removed / str(job)
        if not self._root:  # root can open it whatever its mode is
            path.chmod(0o700)
        fd = open_below(self._home.removed, path, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, fd)
        return fd

    def spawn_notifier(self, fd: int, owner: int, gid: int) -> Child:
        """Start the process, which inherits the socket."""
        notifier = start_isolated(NOTIFIER, [fd, *self._who(owner, gid)], [fd])
        restore_file_limit(notifier.pid)
        return Child(notifier.pid, popen=notifier)

    def kill(self, child: Child, owner: int) -> None:
        """Kill the child."""
        if child.popen is not None:
            child.popen.kill()

    def watch(self, lost: Callable[[], None]) -> None:
        """Do nothing: the daemon's own rights are never lost."""

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def groups_of(uid: int, gid: int) -> list[int]:
    """Return the supplementary groups of a user; only ``gid`` for a uid without an account."""
    try:
        return os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:
        return [gid]


@contextmanager
def _closed_on_error(fd: int) -> Iterator[int]:
    try:
        yield fd
    except BaseException:
        os.close(fd)
        raise
