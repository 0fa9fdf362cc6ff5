"""The daemon's home: created or found, private and locked, together with the daemon's rights for it."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import socket
import stat
import time
from pathlib import Path

from carpool.daemon.api.server import check_socket
from carpool.daemon.config.options import DaemonOptions
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.privileges.direct import DirectPrivileges
from carpool.daemon.privileges.user import as_files_of, become, give_new_home, listen, system_user
from carpool.daemon.system.errors import StartupError, file_of_home
from carpool.daemon.system.processes import has_not_ended
from carpool.protocol.display import user_name
from carpool.protocol.paths import Home

PATIENCE_S = 5.0  # time for the lock of a killed daemon to become free
RETRY_S = 0.01


@dataclasses.dataclass(frozen=True, slots=True)
class Rights:
    """The rights of a daemon.  ``lock``: that of its home; ``listener``: the API's socket, if root has opened it."""

    lock: int
    privileges: Privileges
    listener: socket.socket | None = None


def take_home(options: DaemonOptions) -> Rights:
    """Lock the home and return the rights for it; with ``--user``, give up the rights of root.

    Raises StartupError, OSError.
    """
    home = options.home
    if options.user is None:
        return Rights(prepare_home(home, shared=os.geteuid() == 0), DirectPrivileges(home))
    user = system_user(options.user)
    give_new_home(home, user)
    with as_files_of(user):
        lock = prepare_home(home, shared=True)
    listener = listen(home, user)
    return Rights(lock, become(user, home), listener)


def prepare_home(home: Home, *, shared: bool) -> int:
    """Create the state directory and take the daemon's lock; return its descriptor.  Raises StartupError."""
    try:
        # If the daemon serves all users, they must get through to the sockets and to their own jobs' directories.
        mode = 0o711 if shared else 0o700
        for directory in (home.root, home.jobs):
            _make(directory, mode)
            _check_private(directory)
    except OSError as error:
        raise StartupError(
            "home_unusable", f"cannot use {home.root}: {error.strerror}", "choose another --home"
        ) from None
    check_socket(home)
    with file_of_home(home.pid_file, "write"):
        return _lock(home)


def _make(directory: Path, mode: int) -> None:
    """Make a directory unless it exists, with a mode that does not depend on the caller's umask.  Raises OSError."""
    if not directory.exists():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(mode)


def _check_private(directory: Path) -> None:
    """Refuse a directory in which other users could create files, such as links that a daemon of root would follow.

    Raises OSError, StartupError.
    """
    status = directory.stat()
    if status.st_uid != os.geteuid():
        text = f"{directory} belongs to user {user_name(status.st_uid)}, you are {user_name(os.geteuid())}"
        hint = "choose a --home (or CARPOOL_HOME) of your own"
        if os.geteuid() == 0:
            hint += f"; if it is that of a daemon with a user of its own: carpool up --user {status.st_uid}"
        raise StartupError("home_of_another_user", text, hint)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        text = f"other users may write to {directory} (mode {stat.S_IMODE(status.st_mode):o})"
        raise StartupError("home_writable", text, f"chmod go-w {directory}; look first for files that are not yours")


def _lock(home: Home) -> int:
    """Take the lock and return its descriptor.  Raises OSError, and StartupError if another daemon holds the lock."""
    fd = os.open(home.pid_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + PATIENCE_S
    while not _locked(fd):
        pid = os.pread(fd, 32, 0).decode(errors="replace").strip()
        if time.monotonic() > deadline or _runs(pid):
            os.close(fd)
            raise StartupError(
                "already_running",
                f"a daemon (pid {pid}) already serves {home.root}",
                "stop it with carpool down, or choose another --home",
            )
        time.sleep(RETRY_S)
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def _locked(fd: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _runs(pid: str) -> bool:
    """Return whether the process lives.

    If not, that daemon was killed while it started a process, which has the lock until it executes its program.
    """
    return pid.isdecimal() and has_not_ended(int(pid))
