"""The change of a daemon of root to another user for good (``--user``), with a helper that stays root."""

from __future__ import annotations

import ctypes
import os
import pwd
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import carpool
from carpool.daemon.privileges.by_helper import HelperPrivileges, start_helper
from carpool.daemon.system.errors import StartupError
from carpool.protocol.display import user_name
from carpool.protocol.paths import Home
from carpool.runtime.user_process import begin_session_keyring

PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
BACKLOG = 1024
_libc = ctypes.CDLL(None, use_errno=True)
_MOVE = "install Carpool, and the Python of its environment, where every user may read them, for example below /opt"


@dataclass(frozen=True, slots=True)
class SystemUser:
    """The user that the daemon becomes.  ``groups``: supplementary ones, for example of the GPUs' device files."""

    uid: int
    gid: int
    groups: tuple[int, ...]


class RootListener(socket.socket):
    """A socket on which root listens; clients see that, and give their environments to a daemon of root only."""

    def listen(self, backlog: int = BACKLOG, /) -> None:
        """Do nothing: a second call of listen would make the user the listener."""


def system_user(text: str) -> SystemUser:
    """Return the user of a name, or of a number, which need not have an account.  Raises StartupError."""
    try:
        account = pwd.getpwuid(int(text)) if text.isdecimal() else pwd.getpwnam(text)
        user = SystemUser(account.pw_uid, account.pw_gid, tuple(os.getgrouplist(account.pw_name, account.pw_gid)))
    except (KeyError, OverflowError):
        if not text.isdecimal() or int(text) >= 2**32 - 1:
            hint = "make one: useradd --system --no-create-home --shell /usr/sbin/nologin carpool"
            raise StartupError("unknown_user", f"--user {text}: there is no such user", hint) from None
        user = SystemUser(int(text), int(text), ())
    if user.uid == 0:
        raise StartupError("bad_user", f"--user {text} is root", "name a user of the daemon's own, or leave it out")
    if os.geteuid() != 0:
        raise StartupError("not_root", "only root can start a daemon with --user", "use sudo, or leave --user out")
    return user


@contextmanager
def as_files_of(user: SystemUser) -> Iterator[None]:
    """Make files as the user meanwhile; operations that the user may not do fail."""
    os.setegid(user.gid)
    os.seteuid(user.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def give_new_home(home: Home, user: SystemUser) -> None:
    """Give the user a home that does not exist yet, or that `carpool up` has just made.  Raises StartupError, OSError.

    A home that a daemon of root has used is refused: it is not given away without an explicit request.
    """
    if not home.root.exists():
        home.root.mkdir(mode=0o700, parents=True)
        home.root.chmod(0o711)  # whatever the umask is
    status = home.root.lstat()
    if status.st_uid == user.uid:
        return
    private = status.st_uid == 0 and stat.S_ISDIR(status.st_mode) and not stat.S_IMODE(status.st_mode) & 0o022
    if not private or {path.name for path in home.root.iterdir()} - {home.log.name}:
        text = (
            f"{home.root} belongs to user {user_name(status.st_uid)}, and the daemon is to run as {user_name(user.uid)}"
        )
        hint = f"end that daemon (`carpool down`), then: chown {user.uid}:{user.gid} {home.root} {home.root}/*"
        raise StartupError("home_of_another_user", text, f"{hint} (not -R: directories of jobs stay their owners')")
    for path in (*home.root.iterdir(), home.root):
        os.chown(path, user.uid, user.gid, follow_symlinks=False)


def listen(home: Home, user: SystemUser) -> RootListener:
    """Make the socket of the API: a file of the user, on which root listens.  Raises OSError."""
    listener = RootListener(socket.AF_UNIX, socket.SOCK_STREAM)
    with as_files_of(user):
        home.socket.unlink(missing_ok=True)
        listener.bind(str(home.socket))
        home.socket.chmod(0o666)
    socket.socket.listen(listener, BACKLOG)
    return listener


def become(user: SystemUser, home: Home) -> HelperPrivileges:
    """Turn this process into the user's for good, and start the helper.  Raises StartupError, OSError."""
    privileges = start_helper(home, user.uid)
    begin_session_keyring()  # the helper keeps the previous keyring
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    _set(PR_SET_NO_NEW_PRIVS, 1)
    _set(PR_SET_DUMPABLE, 0)  # last: the kernel resets it with every change of the user
    _check(user)
    return privileges


def _set(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot give up the rights of root")


def _named(path: Path) -> str:
    """Return the path and its target: a link may lie where every user can read it, and its target elsewhere."""
    target = os.path.realpath(path)
    return str(path) if target == str(path) else f"{target}, which is {path}"


def _check(user: SystemUser) -> None:
    """Check that no rights of root are left and the user can read the daemon's program files.  Raises StartupError."""
    with open("/proc/self/status", encoding="utf-8") as file:
        fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    rights = [int(fields[name], 16) for name in ("CapPrm", "CapEff", "CapAmb")]
    if any(rights) or {*os.getresuid(), *os.getresgid()} != {user.uid, user.gid}:
        raise StartupError("still_root", "the daemon could not give up the rights of root")
    try:
        os.setuid(0)
    except PermissionError:
        pass
    else:
        raise StartupError("still_root", "the daemon could become root again")
    for path in (Path(sys.executable), *map(Path, carpool.__path__)):
        if not os.access(path, os.R_OK | os.X_OK):
            raise StartupError("not_readable", f"user {user_name(user.uid)} cannot read {_named(path)}", _MOVE)
